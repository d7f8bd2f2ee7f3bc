import pytest

from engine.core.config import ConfigError, RequestError, SamplingParams
from engine.events.records import (
    Allocate,
    AllocationFailed,
    Computed,
    CopyOnWrite,
    Fork,
    Preempt,
    Release,
    ReleaseWhy,
    RequestFinished,
    RequestRejected,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    SequenceStatus,
    Share,
)
from tests.core.driver import Driver, config, of_kind


def test_blocks_are_allocated_on_demand_the_17th_token_takes_the_second_block():
    driver = Driver(config(block_size=16, num_blocks=4, max_model_len=32))
    driver.add(15, max_tokens=4)
    assert len(of_kind(driver.step(), Allocate)) == 1
    assert of_kind(driver.step(), Allocate) == []  # the 16th token fills the first block
    (allocated,) = of_kind(driver.step(), Allocate)
    assert (allocated.index, driver.state.sequences[0].computed) == (1, 17)


def test_fork_allocates_nothing_and_shares_every_block():
    driver = Driver(config())
    driver.add(6, n=3, max_tokens=4)
    events = driver.step()
    assert len(of_kind(events, Allocate)) == 2
    assert len(of_kind(events, Fork)) == 2
    assert len(of_kind(events, Share)) == 4
    assert driver.state.active_blocks == 2
    assert driver.scheduler.pool.ref_count[:2] == [3, 3]


def test_the_first_write_to_a_shared_partial_block_copies_it_for_every_owner_but_the_last():
    driver = Driver(config())
    driver.add(6, n=3, max_tokens=4)
    driver.step()
    copies = of_kind(driver.step(), CopyOnWrite)
    assert [(copy.source, copy.index) for copy in copies] == [(1, 1), (1, 1)]
    assert driver.runner.copies == [(copy.source, copy.target) for copy in copies]
    assert driver.scheduler.pool.ref_count[0] == 3, "the full block stays shared"
    assert of_kind(driver.run(), CopyOnWrite) == []


def test_a_full_block_is_never_copied():
    driver = Driver(config())
    driver.add(8, n=4, max_tokens=6)
    assert of_kind(driver.run(), CopyOnWrite) == []
    assert driver.runner.copies == []


def test_each_child_draws_tokens_of_its_own_from_a_prompt_computed_once():
    driver = Driver(config(num_blocks=32))
    request = driver.add(6, n=4, max_tokens=8)
    events = driver.run()
    assert driver.engine.tally.totals.prefill_tokens == 6
    assert len({tuple(sequence.output) for sequence in request.sequences}) == 4
    assert sum(event.tokens for event in of_kind(events, Computed)) == 6 + 4 * 7


def test_a_dry_pool_preempts_the_youngest_and_tells_victim_cause_and_loss():
    driver = Driver(config(num_blocks=4, max_model_len=16))
    driver.add(8, "old", max_tokens=4)
    driver.add(8, "young", max_tokens=4)
    driver.step()
    events = driver.step()
    (preempt,) = of_kind(events, Preempt)
    assert (preempt.sequence, preempt.victim_of) == (1, 0)
    assert (preempt.blocks_released, preempt.tokens_lost) == (2, 8)
    assert len(of_kind(events, AllocationFailed)) == 1
    young = driver.scheduler.waiting[0]
    assert (young.status, young.computed, young.table) == (SequenceStatus.PREEMPTED, 0, [])
    assert len(young.tokens) == 9, "the token it had drawn is kept"


def test_a_preempted_sequence_resumes_and_recomputes_what_it_lost():
    driver = Driver(config(num_blocks=4, max_model_len=16))
    driver.add(8, "old", max_tokens=4)
    young = driver.add(8, "young", max_tokens=4)
    events = driver.run()
    resumed = [e for e in of_kind(events, SequenceScheduled) if e.kind is ScheduledKind.RESUMED]
    assert [event.sequence for event in resumed] == [1]
    assert driver.engine.tally.totals.recompute_tokens == 8
    (finished,) = [e for e in of_kind(events, RequestFinished) if e.request == "young"]
    assert (finished.preemptions, finished.recomputed_tokens) == (1, 8)
    assert len(young.sequences[0].output) == 4


@pytest.mark.parametrize("num_blocks", [4, 5, 6, 32])
def test_output_does_not_depend_on_the_pool(num_blocks):
    def outputs(blocks):
        driver = Driver(config(num_blocks=blocks, max_model_len=16))
        requests = [driver.add(5, n=n, max_tokens=9, seed=n) for n in (1, 2, 3)]
        driver.run()
        return [[s.output for s in r.sequences] for r in requests], driver.engine.tally.totals

    expected, calm = outputs(64)
    got, totals = outputs(num_blocks)
    assert got == expected
    assert not calm.preemptions
    if num_blocks < 32:
        assert totals.preemptions, "the pool was meant to be tight"


def test_an_older_request_is_never_preempted_for_a_younger_one():
    driver = Driver(config(num_blocks=6, max_model_len=24))
    for _ in range(5):
        driver.add(7, max_tokens=12)
    for event in of_kind(driver.run(), Preempt):
        assert event.sequence >= event.victim_of


def test_a_preempted_sequence_resumes_before_one_that_never_started():
    driver = Driver(config(num_blocks=4, max_model_len=16))
    driver.add(8, max_tokens=4)
    driver.add(8, max_tokens=4)
    driver.add(4, max_tokens=2)
    started = [event.sequence for event in of_kind(driver.run(), SequenceScheduled)]
    assert started.index(2) > 2, "the third waits until the second has resumed"
    assert started[:3] == [0, 1, 1]


def test_blocks_return_when_a_sequence_finishes_in_any_order():
    driver = Driver(config(num_blocks=16))
    driver.add(6, n=3, max_tokens=5, ignore_eos=False, stop_token_ids=tuple(range(0, 50, 3)))
    driver.run()
    assert driver.scheduler.pool.num_free == 16
    assert len(of_kind(driver.events, SequenceFinished)) == 3


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_abort_frees_everything_in_every_state_and_twice_does_no_harm(steps):
    driver = Driver(config(num_blocks=4, max_model_len=16))
    driver.add(8, "a", max_tokens=6)
    driver.add(7, "b", n=2, max_tokens=6)
    driver.step(steps)
    assert driver.engine.abort("b")
    assert not driver.engine.abort("b")
    assert driver.engine.abort("a")
    driver.step()
    assert driver.scheduler.pool.num_free == 4
    assert not driver.engine.has_work
    assert [e.reason for e in of_kind(driver.events, RequestFinished)] == ["abort", "abort"]


def test_a_copy_source_is_not_handed_out_before_its_copy_has_run():
    driver = Driver(config(num_blocks=3, max_model_len=12))
    request = driver.add(2, n=2, max_tokens=4)
    driver.step()
    elder, younger = request.sequences
    tables, pool = driver.scheduler.tables, driver.scheduler.pool
    source, _ = tables.append(elder, 1)
    tables.release(younger, ReleaseWhy.PREEMPTED)
    assert (pool.ref_count[source], pool.num_free, pool.num_available) == (0, 2, 1)
    assert pool.take()[0] != source
    pool.copies_done()
    assert pool.take() == (source, False)


def test_a_failed_copy_changes_nothing():
    driver = Driver(config(num_blocks=2, max_model_len=8))
    driver.add(2, n=2, max_tokens=6)
    driver.step()
    tables, sequence = driver.scheduler.tables, driver.scheduler.running[0]
    taken, _ = driver.scheduler.pool.take()
    before = list(driver.scheduler.pool.ref_count), list(sequence.table)
    driver.scheduler.events.clear()
    assert tables.blocks_needed([(sequence, 1)]) == 1
    assert not driver.scheduler._has_room([(sequence, 1)])
    assert (list(driver.scheduler.pool.ref_count), list(sequence.table)) == before
    assert driver.scheduler.events == [AllocationFailed(0, 1, 0)]
    driver.scheduler.pool.drop(taken)


@pytest.mark.parametrize(
    ("prompt", "params", "parameter", "words"),
    [
        (30, {}, "prompt", "max_model_len 24"),
        (10, {"max_tokens": 20}, "max_tokens", "max_model_len 24"),
        (20, {"max_tokens": 4}, "prompt", "the whole pool has 4"),
        (4, {"n": 9}, "n", "max_num_seqs 8"),
        ([], {}, "prompt", "empty"),
    ],
)
def test_what_can_never_fit_is_refused_at_once_and_harms_nobody(prompt, params, parameter, words):
    driver = Driver(config(num_blocks=4))
    with pytest.raises(RequestError, match=words) as caught:
        driver.add(prompt, "bad", **{"max_tokens": 1, **params})
    assert caught.value.parameter == parameter
    driver.add(4, "good", max_tokens=3)
    events = driver.run()
    assert len(of_kind(events, RequestRejected)) == (0 if prompt == [] else 1)
    assert [event.request for event in of_kind(events, RequestFinished)] == ["good"]


def test_a_request_id_in_use_is_refused():
    driver = Driver(config())
    driver.add(4, "same", max_tokens=4)
    with pytest.raises(RequestError, match="same is in use"):
        driver.add(4, "same", max_tokens=4)
    driver.run()
    driver.add(4, "same", max_tokens=4)


def test_no_more_sequences_run_than_max_num_seqs_also_when_they_fork():
    driver = Driver(config(num_blocks=64, max_num_seqs=4))
    for n in (3, 2, 1, 4):
        driver.add(3, n=n, max_tokens=5)
    driver.run()  # check_core asserts the limit after every step
    assert len(driver.finished) == 4


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("n", 0), ("max_tokens", 0), ("temperature", -1), ("top_p", 0), ("top_k", -1)],
)
def test_parameters_outside_their_range_are_refused_by_name(parameter, value):
    with pytest.raises(RequestError, match=f"{parameter} is {value}") as caught:
        SamplingParams(**{parameter: value})
    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    "changes",
    [{"num_blocks": 0}, {"block_size": -1}, {"max_num_batched_tokens": 7}, {"max_num_seqs": 65}],
)
def test_sizes_that_cannot_work_are_refused(changes):
    with pytest.raises(ConfigError):
        config(**changes)


@pytest.mark.parametrize("bits", [0, 1, 62, 132])
def test_keys_of_the_prefix_index_are_whole_hexadecimal_digits(bits):
    with pytest.raises(ConfigError, match=f"prefix_hash_bits is {bits}; it is a multiple of 4"):
        config(prefix_hash_bits=bits)


def test_release_gives_back_the_tail_first():
    driver = Driver(config(num_blocks=8))
    driver.add(12, max_tokens=1)
    events = driver.run()
    blocks = [event.block for event in of_kind(events, Allocate)]
    assert [event.block for event in of_kind(events, Release)] == blocks[::-1]
