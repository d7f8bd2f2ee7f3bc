"""Cells: always what a fresh look at the state says, whole or as changes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.cells import MARK_RECORDS, CellState, Grid, Mark, Touch, owner_colour
from engine.events import PoolState, TraceReader
from engine.events.records import (
    Allocate,
    AnyEvent,
    BlockSource,
    Cache,
    Computed,
    CopyOnWrite,
    Durations,
    Evict,
    PoolReset,
    Preempt,
    QueueLengths,
    Release,
    ReleaseWhy,
    RequestAdded,
    ScheduledKind,
    SequenceScheduled,
    Share,
    Step,
    TokenCounts,
)
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe, header


def expected_cells(state: PoolState, marks: dict[int, Mark]) -> list[int]:
    """The definition, block by block, from the state's public face."""
    cells = []
    for block in range(state.num_blocks):
        owners = len(state.owners.get(block, {}))
        if owners:
            code = CellState.SHARED if owners > 1 else CellState.USED
        else:
            code = CellState.CACHED if block in state.hashes else CellState.FREE
        fill = state.filled[block] * 255 // state.block_size
        cells.append(code + (marks.get(block, 0) << 3) + (fill << 8) + (min(owners, 255) << 16))
    return cells


class MarkBook:
    """The rule for marks, told a second time: what last happened to a block, if it is recent."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[Mark, int]] = {}

    def note(self, step: Step) -> dict[int, Mark]:
        for event in step.events:
            if isinstance(event, CopyOnWrite):
                self._last[event.target] = (Mark.COPIED, step.seq)
            elif isinstance(event, Allocate) or (
                isinstance(event, Share) and self._of(event.block) is Mark.LOST
            ):
                self._last[event.block] = (Mark.NONE, step.seq)
            elif isinstance(event, Release) and event.left == 0:
                lost = event.why is ReleaseWhy.PREEMPTED
                self._last[event.block] = (Mark.LOST if lost else Mark.NONE, step.seq)
        return {
            block: mark
            for block, (mark, seq) in self._last.items()
            if step.seq < seq + MARK_RECORDS
        }

    def _of(self, block: int) -> Mark:
        return self._last.get(block, (Mark.NONE, -1))[0]


class TouchBook:
    """The second word, told a second time: the last event in its order, and the oldest owner."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[Touch, int]] = {}

    def expected(self, state: PoolState, step: Step) -> list[int]:
        for event in step.events:
            for block, touch in self._of(event):
                self._last[block] = (touch, step.seq)
        return [self._detail(state, block, step.seq) for block in range(state.num_blocks)]

    def _of(self, event: AnyEvent) -> list[tuple[int, Touch]]:
        match event:
            case Allocate(block=block):
                return [(block, Touch.ALLOCATED)]
            case Share(block=block):
                return [(block, Touch.SHARED)]
            case Release(block=block, why=ReleaseWhy.PREEMPTED):
                return [(block, Touch.PREEMPTED)]
            case Release(block=block):
                return [(block, Touch.RELEASED)]
            case CopyOnWrite(source=source, target=target):
                return [(source, Touch.RELEASED), (target, Touch.COPIED)]
            case Cache(block=block):
                return [(block, Touch.CACHED)]
            case Evict(block=block):
                return [(block, Touch.EVICTED)]
        return []

    def _detail(self, state: PoolState, block: int, seq: int) -> int:
        touch, at = self._last.get(block, (Touch.NONE, -1))
        recent = touch if seq < at + MARK_RECORDS else Touch.NONE
        owners = state.owners.get(block)
        colour = owner_colour(state.sequences[min(owners)].request) if owners else 0
        return colour | recent << 8


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    num_blocks=st.integers(16, 90),
    block_size=st.sampled_from([1, 4, 16]),
    max_running=st.integers(1, 10),
    look=st.integers(1, 9),
)
def test_followed_cells_and_their_changes_equal_a_fresh_derivation_at_each_step(
    seed: int, num_blocks: int, block_size: int, max_running: int, look: int
) -> None:
    longest = (num_blocks - 2) * block_size // 2
    engine = SimulatedEngine(
        num_blocks,
        block_size,
        seed=seed,
        prompt=(1, longest),
        output=(1, longest // 2),
        max_running=max_running,
    )
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    grid, marks, touches = Grid(state), MarkBook(), TouchBook()
    browser, seen = grid.words.copy(), grid.revision
    for number in range(120):
        step = engine.step()
        state.apply(step)
        grid.follow(state, step)
        expected = expected_cells(state, marks.note(step))
        assert grid.cells.tolist() == expected
        assert sum(grid.counts) == num_blocks
        free, used, cached, shared = grid.counts
        assert (free, cached, shared) == (
            state.free_blocks,
            state.cached_blocks,
            state.shared_blocks,
        )
        assert used + shared == state.active_blocks
        assert grid.slots_filled == state.slots_filled
        assert grid.references == state.references
        assert grid.words[:, 1].tolist() == touches.expected(state, step)
        assert grid.words[:, 2].tolist() == [seq + 1 for seq in state.last_change]
        if number % look == 0:
            blocks, words = grid.since(seen)
            browser[blocks] = words
            seen = grid.revision
            assert browser.tolist() == grid.words.tolist()


def test_cells_of_a_keyframe_equal_those_that_were_followed(small_trace: Path) -> None:
    with TraceReader(small_trace) as reader:
        state = PoolState(reader.header)
        grid = None
        for record in reader:
            state.apply(record)
            if grid is None:
                grid = Grid(state)
            elif isinstance(record, Step):
                grid.follow(state, record)
    fresh = Grid(state)
    unmarked = grid.cells & ~np.uint32(0b11000)
    assert fresh.cells.tolist() == unmarked.tolist()
    assert fresh.counts == grid.counts
    assert fresh.slots_filled == grid.slots_filled


def follow(grid: Grid, state: PoolState, *events: AnyEvent) -> None:
    """Apply one step of these events to both."""
    step = Step(
        seq=state.seq + 1,
        step=state.step,
        time=state.time,
        durations=Durations(0, 0, 0),
        tokens=TokenCounts(),
        queues=QueueLengths(0, 0, 0),
        events=list(events),
    )
    state.apply(step)
    grid.follow(state, step)


def started(num_blocks: int, block_size: int) -> tuple[Grid, PoolState]:
    """An empty pool and one running sequence, number 0."""
    state = PoolState(header(num_blocks, block_size))
    state.apply(empty_keyframe())
    grid = Grid(state)
    added = RequestAdded("r", 0, 40, 1, 9, 100.0)
    follow(grid, state, added, SequenceScheduled(0, ScheduledKind.FIRST))
    return grid, state


def test_a_chunk_over_several_blocks_fills_the_block_begun_before() -> None:
    grid, state = started(num_blocks=4, block_size=16)
    follow(grid, state, Allocate(3, 0, 0, BlockSource.FREE), Computed(0, 5))
    more = [Allocate(block, 0, 3 - block, BlockSource.FREE) for block in (2, 1)]
    follow(grid, state, *more, Computed(0, 35))
    assert [(int(cell) >> 8) & 255 for cell in grid.cells] == [0, 8 * 255 // 16, 255, 255]
    assert grid.cells.tolist() == expected_cells(state, {})


def test_an_eviction_without_a_new_owner_frees_the_cell() -> None:
    grid, state = started(num_blocks=4, block_size=16)
    taken = Allocate(3, 0, 0, BlockSource.FREE)
    follow(grid, state, taken, Computed(0, 16), Cache(3, "h"))
    follow(grid, state, Release(3, 0, ReleaseWhy.ABORTED, 0))
    assert int(grid.cells[3]) & 0b111 == CellState.CACHED
    follow(grid, state, Evict(3, "h"))
    assert int(grid.cells[3]) == CellState.FREE
    assert grid.counts == [4, 0, 0, 0]


def test_a_reset_of_the_pool_frees_every_cached_cell() -> None:
    engine = SimulatedEngine(60, seed=5, requests=4)
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    grid = Grid(state)
    while not engine.idle:
        step = engine.step()
        state.apply(step)
        grid.follow(state, step)
    assert grid.counts[CellState.CACHED] > 0
    follow(grid, state, PoolReset())
    assert grid.counts[CellState.FREE] == 60
    assert {int(cell) & 0b111 for cell in grid.cells} == {CellState.FREE}


@pytest.mark.parametrize("seed", [3, 7])
def test_a_preempted_block_is_marked_until_it_is_used_again_or_the_mark_ends(seed: int) -> None:
    engine = SimulatedEngine(24, seed=seed, max_running=8)
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    grid = Grid(state)
    marked = 0
    for _ in range(150):
        step = engine.step()
        state.apply(step)
        grid.follow(state, step)
        lost = [block for block in range(24) if grid.mark(block) is Mark.LOST]
        assert all(state.ref_count[block] == 0 for block in lost)
        if any(isinstance(event, Preempt) for event in step.events):
            marked += len(lost)
    assert marked, "the run must preempt for this test to say anything"
