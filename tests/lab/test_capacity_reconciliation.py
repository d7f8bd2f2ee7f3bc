"""Sized for 250, manages 200: each cause alone, all together, and the sum is always exact."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.config import ConfigError
from engine.events import PoolState
from engine.events.records import (
    Allocate,
    BlockSource,
    Computed,
    Durations,
    Keyframe,
    QueueLengths,
    RequestAdded,
    ScheduledKind,
    SequenceScheduled,
    Share,
    ShareWhy,
    Step,
    TokenCounts,
    Totals,
)
from engine.lab.capacity import Sizing, blocks_of
from engine.lab.observation import Observation, observe, observe_trace
from engine.lab.reconciliation import Cause, conclusion, own_sizing, reconcile
from tests.core.driver import config
from tests.events.traces import busy_run, full_header, steps_of, write_trace

LENGTH = 64
"""Four blocks of 16."""
SIZING = Sizing(bytes_per_token=10, block_size=16, memory=1000 * 160)
"""1,000 blocks: 250 sequences of LENGTH."""


def seen(tokens: list[int], **changed) -> Observation:
    """An engine that runs sequences of these lengths in a pool as SIZING has it, while some wait."""
    size = changed.get("block_size", 16)
    entries = [blocks_of(length, size) for length in tokens]
    values = {
        "engine": "e",
        "model": "m",
        "seq": 7,
        "step": 5,
        "block_size": size,
        "num_blocks": 1000,
        "bytes_per_block": 160,
        "watermark": 0,
        "max_num_seqs": 1000,
        "active": sum(entries),
        "waiting": 3,
    }
    return Observation(**{**values, **changed}, tokens=tuple(tokens), entries=tuple(entries))


def effects(observation: Observation, length: int = LENGTH, sizing: Sizing = SIZING):
    """Cause -> sequences it takes, those of no effect left out; the sum is checked on the way."""
    found = reconcile(sizing, length, observation)
    assert found.sized_for - sum(effect.missing for effect in found.effects) == found.runs
    assert found.sized_for == sizing.row(length).sequences
    assert found.runs == observation.running
    assert [effect.cause for effect in found.effects] == [
        cause for cause in Cause if cause in {effect.cause for effect in found.effects}
    ]
    assert all("\n" not in effect.why for effect in found.effects)
    return {effect.cause: effect.missing for effect in found.effects if effect.missing}


def test_an_engine_that_runs_what_it_was_sized_for_has_no_cause():
    assert effects(seen([LENGTH] * 250)) == {}
    found = reconcile(SIZING, LENGTH, seen([LENGTH] * 250))
    assert (found.largest, found.missing) == (None, 0)


def test_lengths_that_do_not_fill_their_blocks_are_no_cause_where_they_were_assumed():
    assert effects(seen([50] * 250), length=50) == {}


def test_memory_that_went_elsewhere_is_the_pool():
    assert effects(seen([LENGTH] * 200, num_blocks=800)) == {Cause.POOL: 50}


def test_a_larger_dtype_is_the_bytes_of_a_block():
    found = seen([LENGTH] * 125, num_blocks=500, bytes_per_block=320)
    assert effects(found) == {Cause.BLOCK_BYTES: 125}


def test_an_engine_whose_blocks_have_a_few_bytes_more_agrees_with_itself():
    scaled = seen([LENGTH] * 250, bytes_per_block=165)
    assert effects(scaled, sizing=own_sizing(scaled)) == {}


def test_a_larger_block_size_is_the_block_where_memory_is_the_same():
    # 17 tokens are 2 blocks of 16, or 1 of 32: sized for 500, and 500 fit.
    assert effects(seen([17] * 500, block_size=32, num_blocks=500, bytes_per_block=320), 17) == {}
    # 16 tokens are 1 block of 16 and half of one of 32.
    halved = seen([16] * 500, block_size=32, num_blocks=500, bytes_per_block=320)
    assert effects(halved, 16) == {Cause.BLOCK_BYTES: 500}


def test_blocks_kept_free_to_grow_into_are_the_watermark():
    assert effects(seen([LENGTH] * 240, watermark=40)) == {Cause.WATERMARK: 10}


def test_a_watermark_that_running_sequences_have_grown_into_takes_nothing():
    assert effects(seen([LENGTH] * 250, watermark=40)) == {}


def test_longer_sequences_are_the_length():
    assert effects(seen([80] * 200)) == {Cause.LENGTH: 50}


def test_shorter_sequences_add():
    assert effects(seen([32] * 500)) == {Cause.LENGTH: -250}
    assert reconcile(SIZING, LENGTH, seen([32] * 500)).largest is None


def test_lengths_around_the_mean_fill_their_last_blocks_less():
    # 63 and 65 have a mean of 64, and 4 and 5 blocks.
    assert effects(seen([63, 65] * 111)) == {Cause.PARTIAL_BLOCKS: 28}


def test_shared_blocks_add():
    assert effects(seen([LENGTH] * 500, active=1000)) == {Cause.SHARING: -250}


def test_a_limit_on_sequences_is_max_num_seqs():
    assert effects(seen([LENGTH] * 200, max_num_seqs=200)) == {Cause.MAX_NUM_SEQS: 50}


def test_no_more_requests_are_the_demand():
    assert effects(seen([LENGTH] * 200, waiting=0)) == {Cause.DEMAND: 50}


def test_room_that_the_next_request_does_not_fit_into_is_room():
    assert effects(seen([LENGTH] * 200, waiting=1)) == {Cause.ROOM: 50}


def test_causes_add_up_in_their_order_and_the_largest_is_named():
    found = seen([80] * 96, num_blocks=600, watermark=50, active=400, max_num_seqs=110)
    account = reconcile(SIZING, LENGTH, found)
    assert effects(found) == {
        Cause.POOL: 100,  # 250 -> 600 // 4
        Cause.WATERMARK: 13,  # -> 550 // 4 = 137
        Cause.LENGTH: 27,  # -> 550 // 5 = 110
        Cause.SHARING: -22,  # -> 550 * 96 // 400 = 132
        Cause.MAX_NUM_SEQS: 22,
        Cause.ROOM: 14,
    }
    assert account.missing == 154
    assert account.largest.cause is Cause.POOL
    assert "600 blocks, the memory makes 1,000: 64,000 bytes went to weights" in account.largest.why


def test_an_idle_engine_says_nothing_of_lengths():
    found = reconcile(SIZING, LENGTH, seen([], waiting=0))
    causes = [effect.cause for effect in found.effects]
    assert Cause.LENGTH not in causes
    assert effects(seen([], waiting=0)) == {Cause.DEMAND: 250}


def test_an_engine_without_a_model_or_a_limit_tells_neither():
    found = reconcile(SIZING, LENGTH, seen([LENGTH] * 250, bytes_per_block=0, max_num_seqs=None))
    why = {effect.cause: effect.why for effect in found.effects}
    assert "runs without a model" in why[Cause.BLOCK_BYTES]
    assert "does not tell its limit" in why[Cause.MAX_NUM_SEQS]
    assert found.missing == 0


def test_an_engines_own_pool_has_its_own_blocks():
    assert own_sizing(seen([LENGTH])) == SIZING
    modelless = own_sizing(seen([LENGTH], bytes_per_block=0))
    assert (modelless.num_blocks, modelless.block_size) == (1000, 16)
    assert effects(seen([LENGTH] * 250, bytes_per_block=0), sizing=modelless) == {}


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(0, 300), max_size=60),
    free=st.integers(0, 200),
    shared=st.integers(0, 100),
    watermark=st.integers(0, 300),
    spare_seqs=st.none() | st.integers(0, 100),
    bytes_per_block=st.sampled_from([0, 80, 160, 240]),
    waiting=st.integers(0, 2),
    length=st.integers(1, 400),
    memory=st.integers(160, 10**6),
)
def test_the_account_is_exact_whatever_is_seen(
    lengths, free, shared, watermark, spare_seqs, bytes_per_block, waiting, length, memory
):
    entries = tuple(max(1, blocks_of(tokens, 16)) if tokens else 1 for tokens in lengths)
    active = max(sum(entries) - shared, max(entries, default=0))
    found = Observation(
        engine="e",
        model="m",
        seq=0,
        step=0,
        block_size=16,
        num_blocks=max(1, active + free),
        bytes_per_block=bytes_per_block,
        watermark=watermark,
        max_num_seqs=None if spare_seqs is None else len(lengths) + spare_seqs,
        tokens=tuple(lengths),
        entries=entries,
        active=active,
        waiting=waiting,
    )
    sizing = Sizing(10, 16, memory)
    effects(found, length, sizing)
    account = reconcile(sizing, length, found)
    last = account.effects[-1]
    assert last.cause is (Cause.ROOM if waiting else Cause.DEMAND)
    assert last.missing >= 0


# -- what is seen -----------------------------------------------------------------------------------


def running_state(**configured) -> PoolState:
    """Two running sequences of 20 and 5 tokens, which share no block, and a third that waits."""
    head = full_header(config(num_blocks=8, block_size=16, max_num_seqs=6, watermark=0.25))
    state = PoolState(msgspec.structs.replace(head, **configured))
    state.apply(Keyframe(-1, -1, 0.0, [], [], [], Totals()))
    free = BlockSource.FREE
    events = [
        RequestAdded("a", 0, 20, 1, 9, 0.0),
        RequestAdded("b", 1, 5, 1, 9, 0.0),
        RequestAdded("c", 2, 5, 1, 9, 0.0),
        SequenceScheduled(0, ScheduledKind.FIRST),
        SequenceScheduled(1, ScheduledKind.FIRST),
        Allocate(3, 0, 0, free),
        Allocate(4, 0, 1, free),
        Allocate(5, 1, 0, free),
        Computed(0, 20),
        Computed(1, 5),
    ]
    step = Step(
        0, 1, 0.0, Durations(0, 0, 0), TokenCounts(prefill=25), QueueLengths(1, 2, 0), events
    )
    state.apply(step)
    return state


def test_a_moment_is_read_from_the_state():
    found = observe(running_state())
    assert (found.tokens, found.entries, found.active, found.waiting) == ((20, 5), (2, 1), 3, 1)
    assert (found.num_blocks, found.watermark, found.max_num_seqs) == (8, 2, 6)
    assert (found.seq, found.step, found.running, found.mean_tokens) == (0, 1, 2, 12.5)
    assert found.wasted_slots == 48 - 25
    assert (found.percentile(50), found.percentile(90)) == (5, 20)


def test_shared_blocks_are_held_once():
    state = running_state()
    share = [Share(3, 2, 0, ShareWhy.PREFIX)]
    share.insert(0, SequenceScheduled(2, ScheduledKind.FIRST))
    state.apply(Step(1, 2, 1.0, Durations(0, 0, 0), TokenCounts(), QueueLengths(0, 3, 0), share))
    found = observe(state)
    assert (found.entries, found.active, found.waiting) == ((2, 1, 1), 3, 0)


def test_limits_that_are_not_told_are_unknown():
    found = observe(running_state(config={}))
    assert (found.watermark, found.max_num_seqs) == (0, None)


def test_a_source_that_tells_no_blocks_is_refused():
    with pytest.raises(ConfigError, match="does not tell which blocks"):
        observe(running_state(knows=["queues"]))


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    head, records = busy_run()
    path = write_trace(tmp_path_factory.mktemp("busy") / "busy.jsonl.zst", head, records)
    return path, records


def test_of_a_trace_the_median_of_the_records_with_a_queue_is_taken(busy):
    path, records = busy
    waited = [step for step in steps_of(records) if step.queues.waiting + step.queues.preempted]
    counts = sorted(step.queues.running for step in waited)
    median = counts[(len(counts) - 1) // 2]
    assert counts[0] < counts[-1]
    told: list[tuple[int, int]] = []
    found = observe_trace(path, lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert 0 < told[-1][0] <= told[-1][1] == 2 * path.stat().st_size
    assert found.running == median
    assert found.waiting > 0
    assert found.seq == next(step.seq for step in waited if step.queues.running == median)
    effects(found, length=8, sizing=own_sizing(found))


def test_of_a_trace_without_a_queue_the_fullest_record_is_taken(tmp_path):
    head, records = busy_run(num_blocks=60, max_num_seqs=8)
    records = [record for record in records if record.seq < 4]
    steps = steps_of(records)
    assert not any(step.queues.waiting + step.queues.preempted for step in steps)
    found = observe_trace(write_trace(tmp_path / "calm.jsonl.zst", head, records))
    most = max(step.queues.running for step in steps)
    assert found.running == most
    assert sum(step.queues.running == most for step in steps) > 1
    assert found.seq == next(step.seq for step in steps if step.queues.running == most)


def test_a_trace_without_steps_is_refused(tmp_path):
    head, records = busy_run()
    path = write_trace(tmp_path / "empty.jsonl.zst", head, records[:1])
    with pytest.raises(ConfigError, match="has no step"):
        observe_trace(path)


@pytest.mark.parametrize(
    ("observation", "sentence"),
    [
        (seen([LENGTH] * 250), "Nothing is missing."),
        (seen([], waiting=0), "No sequence runs at this moment: look again under load."),
        (
            seen([LENGTH] * 200, max_num_seqs=200),
            "Most is taken by max_num_seqs: 50 sequences; at most 200 sequences may run.",
        ),
        (
            seen([LENGTH] * 500, active=1000),
            "Most is added by sharing: 250 sequences; 2,000 table entries are 1,000 blocks.",
        ),
    ],
)
def test_the_conclusion_names_what_did_most(observation, sentence):
    first, said = conclusion(reconcile(SIZING, LENGTH, observation), observation)
    assert first == (
        f"Sized for 250, runs {observation.running} ({observation.waiting} waiting) at step 5 of e."
    )
    assert said == sentence
