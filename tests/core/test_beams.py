"""Beam search: the beams of one request share, move, wait and are preempted together."""

import pytest

from engine.core.beam import Beam, BeamSearch
from engine.core.config import RequestError, SamplingParams
from engine.core.drawn import TokenLogprob
from engine.core.sequence import Sequence
from engine.events.records import (
    FinishReason,
    Preempt,
    Release,
    ReleaseWhy,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
)
from tests.core.driver import Driver, config, of_kind


def search(driver: Driver, prompt=6, n=3, **params):
    return driver.add(prompt, use_beam_search=True, n=n, **{"max_tokens": 8, **params})


def test_pruned_beams_free_their_blocks_in_the_step_that_prunes_them():
    driver = Driver(config(num_blocks=64))
    search(driver)
    pruned = 0
    while driver.engine.has_work:
        tables = {number: list(s.table) for number, s in driver.state.sequences.items()}
        events = driver.step()
        for end in of_kind(events, SequenceFinished):
            if end.reason is not FinishReason.PRUNED:
                continue
            pruned += 1
            released = [e for e in of_kind(events, Release) if e.sequence == end.sequence]
            assert {event.why for event in released} == {ReleaseWhy.PRUNED}
            assert len(released) >= len(tables[end.sequence])
            assert end.sequence not in driver.state.sequences
    assert pruned > 0
    assert driver.scheduler.pool.num_free == 64


def test_beams_are_preempted_together_and_resume_together():
    driver = Driver(config(num_blocks=7, max_model_len=20))
    driver.add(8, max_tokens=10)
    request = search(driver, 6, n=2, max_tokens=6)
    driver.run()
    records = {Preempt: [], SequenceScheduled: []}
    state_of = driver.events
    for event in state_of:
        if isinstance(event, Preempt):
            records[Preempt].append(event.sequence)
        elif isinstance(event, SequenceScheduled) and event.kind is ScheduledKind.RESUMED:
            records[SequenceScheduled].append(event.sequence)
    # check_core holds after each step that no beam runs while another waits.
    assert len(records[Preempt]) == 2
    assert sorted(records[Preempt]) == sorted(records[SequenceScheduled])
    assert request.preemptions == 2
    assert len(request.beams.best) == 2


@pytest.mark.parametrize("num_blocks", [12, 13, 15, 24])
@pytest.mark.parametrize("caching", [False, True])
def test_beams_do_not_depend_on_the_pool(num_blocks, caching):
    def best(blocks):
        driver = Driver(config(num_blocks=blocks, enable_prefix_caching=caching))
        requests = [search(driver, 5 + n, n=n, seed=n) for n in (1, 2, 3, 3)]
        driver.run()
        return [request.beams.best for request in requests], driver.engine.tally.totals.preemptions

    expected, calm = best(200)
    assert best(num_blocks)[0] == expected
    assert not calm
    assert best(12)[1], "the smallest pool was meant to be tight"


def test_beams_end_with_n_hypotheses_best_first():
    driver = Driver(config(num_blocks=64))
    request = search(driver, n=4, ignore_eos=False)
    driver.run()
    scores = [hypothesis.score for hypothesis in request.beams.best]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)
    assert request.finish_reason is request.beams.best[0].reason


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
def test_a_score_is_the_sum_of_the_logprobs_of_its_tokens_over_its_length(length_penalty):
    driver = Driver(config(num_blocks=64), vocab_size=9)
    request = search(driver, n=3, length_penalty=length_penalty, ignore_eos=False)
    driver.run()
    for hypothesis in request.beams.best:
        total = 0.0
        for length, token in enumerate(hypothesis.output):
            so_far = Sequence(99, request, 0, request.prompt + hypothesis.output[:length])
            candidates = driver.runner._candidates(so_far)
            total += next(c.logprob for c in candidates if c.token == token)
        score = total / len(hypothesis.output) ** length_penalty
        assert hypothesis.score == pytest.approx(score)


def test_beams_that_may_each_need_a_table_and_have_none_are_refused():
    driver = Driver(config(num_blocks=8))
    with pytest.raises(RequestError, match="for each of 3 beams, the whole pool has 8"):
        search(driver, 6, n=3, max_tokens=4)
    search(driver, 6, n=2, max_tokens=4)
    driver.run()
    assert len(driver.finished) == 1


@pytest.mark.parametrize("name", ["top_p", "min_p", "presence_penalty"])
def test_what_would_bend_the_scores_is_refused_by_name(name):
    with pytest.raises(RequestError, match=f"{name} does not go with use_beam_search"):
        SamplingParams(n=2, use_beam_search=True, **{name: 0.5})


def beam(output: list[int], logprob: float, **candidates: float) -> Beam:
    """Candidates by name t1, t2, ..."""
    return Beam(
        output,
        logprob,
        tuple(TokenLogprob(int(t[1:]), p, 1 + i) for i, (t, p) in enumerate(candidates.items())),
    )


def test_the_best_continuations_of_all_beams_go_on():
    beams = BeamSearch(SamplingParams(n=2, max_tokens=5, use_beam_search=True))
    survivors = beams.advance(
        [beam([1], -1.0, t5=-0.1, t6=-0.2), beam([2], -3.0, t7=-0.1, t8=-5.0)], frozenset()
    )
    assert [(s.beam, s.token, s.logprob) for s in survivors] == [(0, 5, -1.1), (0, 6, -1.2)]


def test_an_end_among_the_first_n_is_kept_and_a_lesser_one_is_not():
    beams = BeamSearch(SamplingParams(n=2, max_tokens=5, use_beam_search=True))
    first = beam([1], -1.0, t9=-0.1, t5=-0.2, t6=-0.3)
    second = beam([2], -1.05, t9=-0.5, t7=-2.0)
    survivors = beams.advance([first, second], frozenset({9}))
    assert [hypothesis.output for hypothesis in beams.best] == [[1, 9]]
    assert beams.best[0].score == pytest.approx(-1.1 / 2)
    assert [(s.beam, s.token) for s in survivors] == [(0, 5), (0, 6)]


def test_the_search_is_over_when_no_beam_can_still_win():
    beams = BeamSearch(SamplingParams(n=1, max_tokens=9, use_beam_search=True, length_penalty=0.0))
    assert beams.advance([beam([1], -1.0, t9=-0.1, t5=-0.2)], frozenset({9})) == []
    assert [hypothesis.output for hypothesis in beams.best] == [[1, 9]]
