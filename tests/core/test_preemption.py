"""Who gives way when the pool is dry, and what becomes of it."""

import pytest

from engine.events.records import (
    AllocationFailed,
    CopyOnWrite,
    LookupStop,
    Preempt,
    PrefixLookup,
    RequestFinished,
    SequenceFinished,
    SequenceStatus,
)
from tests.core.driver import Driver, config, of_kind

OLD, YOUNG = list(range(1, 9)), list(range(11, 19))


def test_a_preempted_sequence_resumes_on_what_is_left_of_its_blocks():
    driver = Driver(config(num_blocks=4, max_model_len=16, enable_prefix_caching=True))
    driver.add(OLD, max_tokens=4)
    driver.add(YOUNG, max_tokens=4)
    events = driver.step(2)
    assert len(of_kind(events, Preempt)) == 1
    # The old one took the tail of the young one, not its head.
    events = driver.step(3)
    (lookup,) = of_kind(events, PrefixLookup)
    assert lookup == PrefixLookup(1, 9, 4, LookupStop.MISS, resumed=True)
    totals = driver.engine.tally.totals
    assert (totals.prefill_tokens, totals.recompute_tokens, totals.decode_tokens) == (16, 4, 4)
    assert driver.scheduler.running[0].computed == 9
    # A sequence that finds its own blocks again says nothing of how alike requests are.
    assert (totals.prefix_queried_tokens, totals.prefix_hit_tokens) == (16, 0)
    driver.run()
    finished = {e.request: e for e in of_kind(driver.events, RequestFinished)}
    assert (finished["r1"].preemptions, finished["r1"].recomputed_tokens) == (1, 4)


def test_tokens_lost_twice_are_recomputed_twice_as_far_as_they_ever_were_computed():
    driver = Driver(config(num_blocks=10, max_model_len=36, long_prefill_token_threshold=1))
    for prompt, max_tokens in ((6, 5), (8, 16), (8, 22), (12, 6)):
        driver.add(prompt, max_tokens=max_tokens)
    driver.run()  # the ledger compares what each event tells with what was computed before
    lost = [event.tokens_lost for event in of_kind(driver.events, Preempt) if event.sequence == 3]
    assert lost == [8, 6], "the second time it had not got as far again"
    (finished,) = [e for e in of_kind(driver.events, RequestFinished) if e.request == "r3"]
    assert finished.recomputed_tokens == 6 + 8


def test_a_copy_on_write_without_a_free_block_copies_nothing_but_preempts_the_sibling():
    driver = Driver(config(num_blocks=2, max_model_len=12))
    request = driver.add(6, n=2, max_tokens=3)
    driver.step()
    assert driver.scheduler.pool.ref_count == [2, 2]
    events = driver.step()
    assert of_kind(events, AllocationFailed)[0] == AllocationFailed(0, 1, 0)
    assert of_kind(events, CopyOnWrite) == []
    elder, younger = request.sequences
    assert (elder.table, elder.computed) == ([0, 1], 7)
    assert (younger.status, younger.table) == (SequenceStatus.PREEMPTED, [])
    driver.run()
    assert [len(sequence.output) for sequence in request.sequences] == [3, 3]
    totals = driver.engine.tally.totals
    assert (totals.prefill_tokens, totals.recompute_tokens, totals.decode_tokens) == (6, 6, 4)


def test_a_young_sequence_that_needs_a_block_gives_way_itself():
    driver = Driver(config(num_blocks=4, max_model_len=16))
    driver.add(6, max_tokens=6)
    driver.add(8, max_tokens=4)
    driver.step()
    (preempt,) = of_kind(driver.step(), Preempt)
    assert (preempt.sequence, preempt.victim_of) == (1, 1)


def test_long_prompts_under_pressure_are_preempted_a_bounded_number_of_times():
    driver = Driver(
        config(
            num_blocks=8,
            max_model_len=32,
            max_num_seqs=4,
            max_num_batched_tokens=8,
            long_prefill_token_threshold=4,
        )
    )
    for number in range(6):
        driver.add(20, max_tokens=10, seed=number)
    driver.run(most=200)
    assert len(driver.finished) == 6
    # Each that starts can only be displaced by one that is older.
    for number, request in enumerate(driver.finished):
        assert request.preemptions <= number


def test_two_completions_that_end_in_any_order_free_their_blocks_once():
    ended_first = set()
    for seed in range(8):
        driver = Driver(config(num_blocks=16))
        driver.add(6, n=2, max_tokens=9, seed=seed, stop_token_ids=tuple(range(0, 50, 4)))
        driver.run()
        ended = of_kind(driver.events, SequenceFinished)
        assert len(ended) == 2
        assert driver.scheduler.pool.num_free == 16
        ended_first.add(ended[0].sequence)
    assert ended_first == {0, 1}


@pytest.mark.parametrize("first", ["a", "b", "c", "d"])
@pytest.mark.parametrize("steps", range(9))
def test_abort_frees_everything_in_every_state_and_twice_does_no_harm(steps, first):
    """Waiting, in mid-prefill, decoding, forked, preempted, a beam search, finished."""
    driver = Driver(
        config(
            num_blocks=10,
            max_num_batched_tokens=8,
            enable_prefix_caching=True,
        )
    )
    driver.add(9, "a", max_tokens=6)
    driver.add(7, "b", n=2, max_tokens=6)
    driver.add(5, "c", n=2, max_tokens=5, use_beam_search=True)
    driver.add(8, "d", max_tokens=3)
    driver.step(steps)
    for name in sorted("abcd", key=lambda name: name != first):
        alive = name in driver.scheduler.requests
        assert driver.engine.abort(name) is alive
        assert not driver.engine.abort(name)
        driver.check()
    assert not driver.engine.has_work
    assert driver.state.active_blocks == 0
    assert sorted(request.request_id for request in driver.finished) == list("abcd")
