"""Arrivals and departures: every slot of every step is accounted for, and each wait has its reason."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.config import ConfigError
from engine.lab import (
    Kind,
    KvShape,
    LabRequest,
    LabSettings,
    Use,
    default_sample,
    lab_requests,
    run_all,
    run_allocator,
)

TINY = LabSettings(max_model_len=24, block_size=4, shape=KvShape(2, 32768, 2, itemsize=2))
"""A page of 16 tokens."""


def run(kind: Kind, memory: int, *requests: tuple[int, int, int], moments: int = 0):
    """Of (arrival, prompt, final); a moment for each step unless told otherwise."""
    coming = [LabRequest(*request) for request in requests]
    steps = coming[-1].arrival + 1 - coming[0].arrival
    return run_allocator(kind, coming, memory, TINY, moments or steps)


@st.composite
def arriving(draw):
    clock, requests = 0, []
    for _ in range(draw(st.integers(1, 25))):
        clock += draw(st.integers(0, 6))
        final = draw(st.integers(1, 24))
        requests.append(LabRequest(clock, draw(st.integers(1, final)), final))
    return requests


@given(kind=st.sampled_from(list(Kind)), memory=st.integers(24, 150), requests=arriving())
@settings(max_examples=80, deadline=None)
def test_each_moment_sums_to_the_memory_and_is_what_the_address_map_shows(kind, memory, requests):
    steps = requests[-1].arrival + 1 - requests[0].arrival
    result = run_allocator(kind, requests, memory, TINY, moments=steps)
    assert [moment.step for moment in result.moments] == list(
        range(requests[0].arrival, requests[-1].arrival + 1)
    )
    for moment in result.moments:
        segments = moment.address_map()
        assert segments[0].start == 0
        assert segments[-1].end == memory
        assert all(a.end == b.start for a, b in pairwise(segments))
        for use in Use:
            shown = sum(end - start for start, end, kind_of, _ in segments if kind_of is use)
            assert shown == moment.account.of(use), use
        assert moment.account.stored == sum(holding.tokens for holding in moment.holdings)
        assert moment.account.memory == memory
    for use in Use:
        of_moments = sum(moment.account.of(use) for moment in result.moments) / steps
        assert result.mean.of(use) == pytest.approx(of_moments), use
    running = sum(moment.running for moment in result.moments) / steps
    assert result.mean_running == pytest.approx(running)
    waiting = sum(moment.waiting for moment in result.moments) / steps
    assert result.mean_waiting == pytest.approx(waiting)


@given(kind=st.sampled_from(list(Kind)), memory=st.integers(1, 150), requests=arriving())
@settings(max_examples=80, deadline=None)
def test_all_that_fit_end_and_the_others_are_refused(kind, memory, requests):
    result = run_allocator(kind, requests, memory, TINY)
    assert result.requests == len(requests)
    assert result.never_fit <= result.refused <= len(requests)
    assert result.refused_with_free <= result.refused_with_empty <= result.refused
    if kind in (Kind.PAGED, Kind.MAPPED):
        assert result.refused_with_free == 0
    else:
        assert result.preemptions == 0
    longest = max(request.final for request in requests)
    if kind is Kind.PAGED:
        never = sum(-(-request.final // 4) > memory // 4 for request in requests)
        assert result.never_fit == never
        assert (never == 0) == (-(-longest // 4) <= memory // 4)


def test_a_sequence_stores_a_token_a_step_and_leaves_after_its_last():
    result = run(Kind.EXACT, 30, (0, 3, 6), (8, 1, 1))
    assert [moment.account.stored for moment in result.moments] == [3, 4, 5, 6, 0, 0, 0, 0, 1]
    assert [moment.account.reserved for moment in result.moments[:4]] == [3, 2, 1, 0]
    assert result.steps == 9


def test_naive_waste_is_told_apart_by_the_length_that_is_reached():
    result = run(Kind.NAIVE, 30, (0, 3, 6), (1, 1, 1))
    account = result.moments[0].account
    assert (account.stored, account.reserved, account.internal) == (3, 3, 18)
    assert account.external == 6, "no second sequence of 24 fits into 6 slots"
    assert account.usable == 0
    assert account.utilisation == 3 / 24


def refusals(result) -> tuple[int, int, int]:
    """Requests that could not be placed; of them, with enough free; with enough without a token."""
    return result.refused, result.refused_with_free, result.refused_with_empty


def test_a_request_is_refused_by_holes_though_enough_is_free():
    # 16 + 16 + 16 of 48; the first and the last leave, and 16 + 16 do not hold 20.
    requests = ((0, 16, 16), (0, 1, 16), (0, 16, 16), (2, 20, 20))
    exact = run(Kind.EXACT, 48, *requests)
    assert exact.moments[-1].account.external == 32
    assert (refusals(exact), exact.waited) == ((1, 1, 1), 1)
    paged = run(Kind.PAGED, 48, *requests)
    assert (refusals(paged), paged.waited) == ((0, 0, 0), 0)


def test_as_many_free_slots_as_are_asked_for_are_enough_and_one_less_is_not():
    # 4 + 4 of 9 are taken; the first leaves, and its 4 lie apart from the last slot.
    requests = ((0, 4, 4), (0, 1, 4))
    assert refusals(run(Kind.EXACT, 9, *requests, (1, 5, 5))) == (1, 1, 1)
    assert refusals(run(Kind.EXACT, 9, *requests, (1, 6, 6))) == (1, 0, 1)


def test_naive_refuses_though_slots_are_empty_but_not_though_they_are_free():
    # Two take 24 of 48 each, and store 4 when the third comes.
    result = run(Kind.NAIVE, 48, (0, 2, 10), (0, 2, 10), (1, 2, 10))
    assert refusals(result) == (1, 0, 1)
    assert result.peak_running == 2
    # The first two leave at step 9.
    assert result.mean_wait == pytest.approx(8 / 3)


def test_full_of_tokens_is_neither_free_nor_empty():
    # 20 of 24 slots store a token when 5 more come.
    assert refusals(run(Kind.EXACT, 24, (0, 20, 20), (0, 5, 5))) == (1, 0, 0)
    assert refusals(run(Kind.EXACT, 24, (0, 20, 20), (0, 4, 4))) == (0, 0, 0)


def test_a_request_refused_at_many_steps_counts_once_and_those_behind_it_not():
    # The second is tried when it comes, when the third comes, and when the first leaves; then both fit.
    result = run(Kind.EXACT, 24, (0, 1, 20), (1, 10, 10), (2, 10, 10))
    assert refusals(result) == (1, 0, 1)
    assert result.waited == 2


def test_a_sequence_that_cannot_grow_is_refused():
    # Two of 8 in three blocks of 4: at step 4 the first takes the last block, the second has none.
    # 10 of 12 slots store a token then, and it has 3 to come.
    assert refusals(run(Kind.PAGED, 12, (0, 1, 8), (0, 1, 8))) == (1, 0, 0)
    # With a slot beyond the blocks, there are 3 without a token; free, but no block.
    assert refusals(run(Kind.PAGED, 13, (0, 1, 8), (0, 1, 8))) == (1, 0, 1)


def test_what_grows_at_the_cost_of_another_was_refused_first():
    # At step 1 the first wants a second block, and the second gives up its two and waits.
    requests = ((0, 4, 8), (0, 5, 8))
    result = run(Kind.PAGED, 14, *requests)
    assert result.preemptions == 1
    # 11 of 14 slots store a token, the first has 3 to come. The second will store all its 8 again.
    assert refusals(result) == (2, 0, 2)
    assert refusals(run(Kind.PAGED, 13, *requests)) == (2, 0, 1)


def test_what_can_never_fit_is_refused_although_all_slots_are_empty():
    # Naive takes 24 for each, and there are 20; a request of 21 has no room in any way.
    result = run(Kind.NAIVE, 20, (0, 2, 10), (1, 2, 21), (2, 2, 20))
    assert (refusals(result), result.never_fit, result.waited) == ((3, 0, 2), 3, 0)
    exact = run(Kind.EXACT, 20, (0, 2, 10), (1, 2, 21), (2, 2, 10))
    assert (refusals(exact), exact.never_fit) == ((1, 0, 0), 1)


def test_the_last_one_in_order_is_preempted_and_stores_its_tokens_again():
    # Two sequences of 8 in three blocks of 4: at step 4 both want a second block.
    result = run(Kind.PAGED, 12, (0, 1, 8), (0, 1, 8), (30, 1, 1))
    assert result.preemptions == 1
    assert result.recomputed == 4
    stored = [moment.account.stored for moment in result.moments[:14]]
    # The first goes on alone to 8 tokens; then the second resumes, with 5 at once.
    assert stored == [2, 4, 6, 8, 5, 6, 7, 8, 5, 6, 7, 8, 0, 0]
    assert [moment.waiting for moment in result.moments[3:9]] == [0, 1, 1, 1, 1, 0]
    running = [[held.sequence for held in moment.holdings] for moment in result.moments[3:9]]
    assert running == [[0, 1], [0], [0], [0], [0], [1]]


def test_what_was_planned_for_a_sequence_ends_with_its_preemption():
    # The second was to leave at step 4; preempted at step 1, back at step 2, it leaves at step 5.
    result = run(Kind.PAGED, 12, (0, 4, 5), (0, 5, 8), (9, 1, 1))
    assert [moment.account.stored for moment in result.moments[:7]] == [9, 5, 6, 7, 8, 0, 0]
    assert (result.preemptions, result.recomputed) == (1, 5)


def test_requests_start_in_the_order_in_which_they_came():
    # The third would fit beside the first, but the second is before it.
    result = run(Kind.EXACT, 24, (0, 10, 14), (1, 20, 20), (2, 2, 2), (20, 1, 1))
    running = {
        moment.step: sorted(holding.sequence for holding in moment.holdings)
        for moment in result.moments
    }
    assert running[2] == [0]
    assert running[5] == [1, 2]


def test_a_run_is_the_same_for_a_seed_and_another_for_another():
    sample = default_sample(60)
    first, again, other = (lab_requests(sample.lengths, 5, seed) for seed in (1, 1, 2))
    assert first == again != other
    settings = LabSettings()
    assert run_all(first, 8192, settings) == run_all(again, 8192, settings)


def test_paging_runs_more_and_wastes_less_than_what_knows_the_future():
    requests = lab_requests(default_sample(300).lengths, every=10, seed=0)
    runs = {result.kind: result for result in run_all(requests, 16_384, LabSettings())}
    paged, exact, naive = runs[Kind.PAGED], runs[Kind.EXACT], runs[Kind.NAIVE]
    assert paged.mean.utilisation > 0.96 > exact.mean.utilisation > naive.mean.utilisation
    assert paged.steps < exact.steps < naive.steps
    assert exact.refused_with_free > 0
    assert exact.mean.share(Use.INTERNAL) == paged.mean.share(Use.EXTERNAL) == 0


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan")])
def test_arrivals_without_a_pace_are_refused(every):
    with pytest.raises(ConfigError, match="number above 0"):
        lab_requests(default_sample(1).lengths, every, seed=0)


def test_no_memory_is_refused():
    with pytest.raises(ConfigError, match="memory is 0 slots"):
        run_all(lab_requests(default_sample(1).lengths, 1, 0), 0, LabSettings())
