"""What the canvas draws: one 32-bit cell a block, derived from PoolState and kept up step by step.

    bits 0-2   state: free, used, cached, shared
    bits 3-4   mark: none, just copied (target of a copy-on-write), just lost by a preemption
    bits 8-15  filled slots, 0..block_size scaled to 0..255
    bits 16-23 ref count, at most 255

A mark lasts MARK_RECORDS step records, so a replay shows the same marks at the same step. It goes
early when it stops being true: a copy that nobody holds, or a lost block that is in use again.
"""

from collections import deque
from collections.abc import Iterable
from enum import IntEnum

import numpy as np

from engine.events import PoolState
from engine.events.records import (
    Allocate,
    Cache,
    Computed,
    CopyOnWrite,
    Evict,
    PoolReset,
    Release,
    ReleaseWhy,
    Share,
    Step,
)

MARK_RECORDS = 20


class CellState(IntEnum):
    FREE = 0
    USED = 1
    CACHED = 2
    SHARED = 3


class Mark(IntEnum):
    NONE = 0
    COPIED = 1
    LOST = 2


def pack(ref_count: int, cached: bool, filled: int, block_size: int, mark: Mark) -> int:
    """One block as a cell."""
    if ref_count > 1:
        state = CellState.SHARED
    elif ref_count == 1:
        state = CellState.USED
    else:
        state = CellState.CACHED if cached else CellState.FREE
    return state | mark << 3 | filled * 255 // block_size << 8 | min(ref_count, 255) << 16


class Grid:
    """The cells of one pool, and which revision last changed each.

    `counts` (blocks per CellState) and `slots_filled` (in active blocks) move along, so that a
    history point costs nothing per block. Not thread-safe: the feed's lock guards it.
    """

    def __init__(self, state: PoolState) -> None:
        self.num_blocks = state.num_blocks
        self.block_size = state.block_size
        self.revision = 0
        self.cells = np.zeros(self.num_blocks, np.uint32)
        self._changed_at = np.zeros(self.num_blocks, np.int64)
        self._marks: dict[int, tuple[Mark, int]] = {}
        self._expiry: deque[tuple[int, int]] = deque()
        self.rebuild(state)

    def rebuild(self, state: PoolState, keep_marks: bool = False) -> None:
        """Derive every cell anew, after a keyframe. Marks stay only where no record was missed."""
        if not keep_marks:
            self._marks.clear()
            self._expiry.clear()
        references = np.array(state.ref_count, np.int64)
        filled = np.array(state.filled, np.int64)
        cached = np.zeros(self.num_blocks, bool)
        cached[list(state.hashes)] = True
        codes = np.where(cached, CellState.CACHED, CellState.FREE)
        codes[references == 1] = CellState.USED
        codes[references > 1] = CellState.SHARED
        marks = np.zeros(self.num_blocks, np.int64)
        for block, (mark, _) in self._marks.items():
            marks[block] = mark
        cells = codes | marks << 3 | filled * 255 // self.block_size << 8
        cells |= np.minimum(references, 255) << 16
        self._store(np.arange(self.num_blocks), cells.astype(np.uint32))
        self._codes: list[int] = codes.tolist()
        self._active_fill: list[int] = np.where(references > 0, filled, 0).tolist()
        self.counts: list[int] = np.bincount(codes, minlength=len(CellState)).tolist()
        self.slots_filled = sum(self._active_fill)

    def follow(self, state: PoolState, step: Step) -> None:
        """Move on by one step record that `state` has just applied."""
        touched = self._touched(state, step)
        while self._expiry and self._expiry[0][0] <= step.seq:
            end, block = self._expiry.popleft()
            if self._marks.get(block, (Mark.NONE, -1))[1] == end:
                del self._marks[block]
                touched.add(block)
        if any(type(event) is PoolReset for event in step.events):
            self.rebuild(state, keep_marks=True)
            return
        blocks, size = list(touched), self.block_size
        values = []
        for block in blocks:
            references, filled = state.ref_count[block], state.filled[block]
            mark = self._marks.get(block, (Mark.NONE, -1))[0]
            value = pack(references, block in state.hashes, filled, size, mark)
            values.append(value)
            self.counts[self._codes[block]] -= 1
            self.counts[value & 7] += 1
            self._codes[block] = value & 7
            active_fill = filled if references else 0
            self.slots_filled += active_fill - self._active_fill[block]
            self._active_fill[block] = active_fill
        self._store(np.array(blocks, np.int64), np.array(values, np.uint32))

    def mark(self, block: int) -> Mark:
        """The mark that the block carries now."""
        return self._marks.get(block, (Mark.NONE, -1))[0]

    def since(self, revision: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and cells of the blocks that changed after `revision`: uint32, ascending."""
        blocks = np.flatnonzero(self._changed_at > revision)
        return blocks.astype(np.uint32), self.cells[blocks]

    def _store(self, blocks: np.ndarray, values: np.ndarray) -> None:
        changed = self.cells[blocks] != values
        if changed.any():
            self.revision += 1
            blocks = blocks[changed]
            self.cells[blocks] = values[changed]
            self._changed_at[blocks] = self.revision

    def _touched(self, state: PoolState, step: Step) -> set[int]:
        """Blocks that the step's events may have changed; sets and drops marks on the way."""
        touched: set[int] = set()
        for event in step.events:
            kind = type(event)
            if kind is Computed:
                touched.update(self._computed_blocks(state, event))
            elif kind is Allocate or kind is Share:
                touched.add(event.block)
                self._unmark(event.block, Mark.LOST)
            elif kind is Release:
                touched.add(event.block)
                if event.left == 0:
                    self._unmark(event.block, Mark.COPIED)
                    if event.why is ReleaseWhy.PREEMPTED:
                        self._set_mark(event.block, Mark.LOST, step.seq)
            elif kind is CopyOnWrite:
                touched.update((event.source, event.target))
                self._set_mark(event.target, Mark.COPIED, step.seq)
            elif kind is Cache or kind is Evict:
                touched.add(event.block)
        return touched

    def _computed_blocks(self, state: PoolState, event: Computed) -> Iterable[int]:
        # A sequence that is gone or was preempted since has released its blocks, which says it too.
        sequence = state.sequences.get(event.sequence)
        if sequence is None:
            return ()
        first = max(0, sequence.computed - event.tokens) // self.block_size
        return sequence.table[first : -(-sequence.computed // self.block_size)]

    def _set_mark(self, block: int, mark: Mark, seq: int) -> None:
        self._marks[block] = (mark, seq + MARK_RECORDS)
        self._expiry.append((seq + MARK_RECORDS, block))

    def _unmark(self, block: int, mark: Mark) -> None:
        if self._marks.get(block, (Mark.NONE, -1))[0] is mark:
            del self._marks[block]
