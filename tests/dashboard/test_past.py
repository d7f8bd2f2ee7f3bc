"""The past: each state of it equals a direct fold, holes are holes, and memory ends."""

import random
from pathlib import Path

import pytest

from dashboard import past
from dashboard.past import Memory, PastError
from dashboard.recorded import RecordedPast
from engine.events import PoolState, encode
from engine.events.records import Step
from engine.events.seek import SeekableTrace
from tests.dashboard.folding import folded, remembered, steps_of
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "SEGMENT_RECORDS", 16)


def states(engine: SimulatedEngine, steps: int) -> tuple[list[Step], dict[int, object]]:
    """The records of an engine and the keyframe after each."""
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    records, frames = [], {-1: state.keyframe()}
    for _ in range(steps):
        records.append(engine.step())
        state.apply(records[-1])
        frames[state.seq] = state.keyframe()
    return records, frames


@pytest.mark.usefixtures("short_segments")
def test_each_state_equals_the_fold_up_to_it() -> None:
    memory = remembered(SimulatedEngine(48, seed=3), 120)
    _, frames = states(SimulatedEngine(48, seed=3), 120)
    seqs = list(frames)
    random.Random(1).shuffle(seqs)
    for seq in seqs:
        assert memory.state_at(seq).keyframe() == frames[seq]
    assert (memory.first_seq, memory.last_seq) == (-1, 119)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize(("after", "upto"), [(-1, 119), (3, 4), (15, 17), (30, 100), (50, 50)])
def test_records_are_those_between_two_moments(after: int, upto: int) -> None:
    memory = remembered(SimulatedEngine(48, seed=3), 120)
    records, _ = states(SimulatedEngine(48, seed=3), 120)
    assert list(memory.records(after, upto)) == records[after + 1 : upto + 1]


def test_a_state_of_the_past_belongs_to_who_asked_for_it() -> None:
    memory = remembered(SimulatedEngine(48, seed=3), 20)
    memory.state_at(10).ref_count[0] = 99
    assert memory.state_at(10).ref_count[0] != 99


@pytest.mark.usefixtures("short_segments")
def test_the_oldest_segments_go_when_the_limit_is_reached() -> None:
    limit = 12_000
    memory = remembered(SimulatedEngine(48, seed=3), 400, limit)
    _, frames = states(SimulatedEngine(48, seed=3), 400)
    assert memory.size <= limit
    assert memory.first_seq > 0
    assert memory.last_seq == 399
    assert memory.state_at(memory.first_seq).keyframe() == frames[memory.first_seq]
    with pytest.raises(PastError, match=f"there is records {memory.first_seq} to 399"):
        memory.state_at(memory.first_seq - 1)
    assert memory.nearest(0) == memory.first_seq


@pytest.mark.usefixtures("short_segments")
def test_what_a_trace_has_beyond_memory_comes_from_its_file(small_trace: Path) -> None:
    state = folded(small_trace, -1)
    memory = Memory(state.header, 9_000)
    memory.begin(state)
    for step in steps_of(small_trace):
        state.apply(step)
        memory.append(encode(step), state)
    held = memory.first_seq
    assert 40 < held < 160
    recorded = RecordedPast(memory, SeekableTrace(small_trace))
    assert (recorded.first_seq, recorded.last_seq) == (-1, 199)
    for seq in (-1, 0, 39, held - 1, held, held + 1, 199):
        assert recorded.nearest(seq) == seq
        assert recorded.state_at(seq).keyframe() == folded(small_trace, seq).keyframe()
        assert recorded.run_start(seq) <= seq
    records = steps_of(small_trace)
    for after, upto in ((-1, 199), (10, 20), (held - 3, held + 3), (held, held + 2)):
        assert list(recorded.records(after, upto)) == records[after + 1 : upto + 1]


def with_a_hole(engine: SimulatedEngine) -> Memory:
    """Records 0..19 and 35..49: the state before 35 comes as a keyframe after a gap."""
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    memory = Memory(engine.header, None)
    memory.begin(state)
    for number in range(50):
        step = engine.step()
        state.apply(step)
        if not 20 <= number < 35:
            memory.append(encode(step), state)
        if number == 34:
            memory.begin(state)
    return memory


def test_a_hole_is_walked_around_and_never_filled() -> None:
    memory = with_a_hole(SimulatedEngine(48, seed=3))
    assert [memory.nearest(seq) for seq in (19, 20, 33, 34, 35)] == [19, 19, 19, 34, 35]
    assert memory.nearest(25, forward=True) == 34
    with pytest.raises(PastError):
        memory.state_at(25)
    assert [step.seq for step in memory.records(17, 37)] == [18, 19, 35, 36, 37]
    assert memory.run_start(40) == 34
    assert memory.run_start(19) == -1


@pytest.mark.usefixtures("short_segments")
def test_a_run_reaches_back_over_segments_without_a_hole() -> None:
    memory = remembered(SimulatedEngine(48, seed=3), 100)
    assert memory.run_start(99) == -1
