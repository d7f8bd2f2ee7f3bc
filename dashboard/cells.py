"""What the canvas draws: three 32-bit words a block, derived from PoolState and kept up step by step.

    cell     bits 0-2   state: free, used, cached, shared
             bits 3-4   mark: none, just copied (target of a copy-on-write), just lost by a preemption
             bits 8-15  filled slots, 0..block_size scaled to 0..255
             bits 16-23 ref count, at most 255
    detail   bits 0-7   colour of the (first) owner's request, 1..OWNER_COLOURS; 0 where none owns it
             bits 8-11  what last changed it (Touch), where that is at most MARK_RECORDS records ago
    changed  seq of the last change + 1; 0 never

A mark lasts MARK_RECORDS step records, so a replay shows the same marks at the same step. It goes
early when it stops being true: a copy that nobody holds, or a lost block that is in use again.
A flash is an event of one record, for a glyph that fades.
"""

import itertools
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from zlib import crc32

import numpy as np

from engine.events import PoolState
from engine.events.records import (
    Allocate,
    BlockSource,
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
OWNER_COLOURS = 24
MAX_FLASHES = 4096


class CellState(IntEnum):
    FREE = 0
    USED = 1
    CACHED = 2
    SHARED = 3


class Mark(IntEnum):
    NONE = 0
    COPIED = 1
    LOST = 2


class Touch(IntEnum):
    """What last changed a block."""

    NONE = 0
    ALLOCATED = 1
    SHARED = 2
    COPIED = 3
    RELEASED = 4
    PREEMPTED = 5
    CACHED = 6
    EVICTED = 7


def pack(ref_count: int, cached: bool, filled: int, block_size: int, mark: Mark) -> int:
    """One block as a cell."""
    if ref_count > 1:
        state = CellState.SHARED
    elif ref_count == 1:
        state = CellState.USED
    else:
        state = CellState.CACHED if cached else CellState.FREE
    return state | mark << 3 | filled * 255 // block_size << 8 | min(ref_count, 255) << 16


def owner_colour(request: str) -> int:
    """The colour number of a request, the same in every session and at every moment."""
    return crc32(request.encode()) % OWNER_COLOURS + 1


class Grid:
    """The words of one pool, and which revision last changed each.

    `counts` (blocks per CellState), `slots_filled` (in active blocks) and `references` (sum of ref
    counts) move along, so that a history row costs nothing per block. `flashes` has the newest
    (seq, Touch, block, source block or -1). Not thread-safe: the scene's lock guards it.
    """

    def __init__(self, state: PoolState) -> None:
        self.num_blocks = state.num_blocks
        self.block_size = state.block_size
        self.revision = 0
        self._words = np.zeros((self.num_blocks, 3), np.uint32)
        self._changed_at = np.zeros(self.num_blocks, np.int64)
        self._marks: dict[int, tuple[Mark, int]] = {}
        self._expiry: deque[tuple[int, int]] = deque()
        self._touches: dict[int, tuple[Touch, int]] = {}
        self._touch_expiry: deque[tuple[int, int]] = deque()
        self._colours: dict[str, int] = {}
        self.flashes: deque[tuple[int, Touch, int, int]] = deque(maxlen=MAX_FLASHES)
        self.rebuild(state)

    @property
    def cells(self) -> np.ndarray:
        """The first word of each block."""
        return self._words[:, 0]

    @property
    def words(self) -> np.ndarray:
        """uint32 [num_blocks, 3]: cell, detail, changed."""
        return self._words

    def rebuild(self, state: PoolState, keep_marks: bool = False) -> None:
        """Derive every cell anew, after a keyframe. Marks stay only where no record was missed."""
        if not keep_marks:
            self.forget_marks()
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
        details = np.zeros(self.num_blocks, np.int64)
        for block, owners in state.owners.items():
            details[block] = self._colour(state, owners)
        for block, (touch, _) in self._touches.items():
            details[block] |= touch << 8
        cells = codes | marks << 3 | filled * 255 // self.block_size << 8
        cells |= np.minimum(references, 255) << 16
        words = np.stack([cells, details, np.array(state.last_change, np.int64) + 1], axis=1)
        self._store(np.arange(self.num_blocks), words.astype(np.uint32))
        self._codes: list[int] = codes.tolist()
        self._active_fill: list[int] = np.where(references > 0, filled, 0).tolist()
        self._references: list[int] = references.tolist()
        self.counts: list[int] = np.bincount(codes, minlength=len(CellState)).tolist()
        self.slots_filled = sum(self._active_fill)
        self.references = int(references.sum())

    def forget_marks(self) -> None:
        """Nothing is known of what happened before."""
        self._marks.clear()
        self._expiry.clear()
        self._touches.clear()
        self._touch_expiry.clear()
        self.flashes.clear()

    def note(self, state: PoolState, step: Step) -> None:
        """Keep the marks up for a step that nobody looks at; the words are for `rebuild` to make."""
        self._expire(step.seq, self._touched(state, step))

    def follow(self, state: PoolState, step: Step) -> None:
        """Move on by one step record that `state` has just applied."""
        touched = self._touched(state, step)
        self._expire(step.seq, touched)
        if any(type(event) is PoolReset for event in step.events):
            self.rebuild(state, keep_marks=True)
            return
        blocks, size = list(touched), self.block_size
        words = []
        for block in blocks:
            references, filled = state.ref_count[block], state.filled[block]
            mark = self._marks.get(block, (Mark.NONE, -1))[0]
            value = pack(references, block in state.hashes, filled, size, mark)
            detail = self._touches.get(block, (Touch.NONE, -1))[0] << 8
            if references:
                detail |= self._colour(state, state.owners[block])
            words.append((value, detail, state.last_change[block] + 1))
            self.counts[self._codes[block]] -= 1
            self.counts[value & 7] += 1
            self._codes[block] = value & 7
            active_fill = filled if references else 0
            self.slots_filled += active_fill - self._active_fill[block]
            self._active_fill[block] = active_fill
            self.references += references - self._references[block]
            self._references[block] = references
        if blocks:
            self._store(np.array(blocks, np.int64), np.array(words, np.uint32))

    def mark(self, block: int) -> Mark:
        """The mark that the block carries now."""
        return self._marks.get(block, (Mark.NONE, -1))[0]

    def since(self, revision: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (uint32, ascending) and words of the blocks that changed after `revision`."""
        blocks = np.flatnonzero(self._changed_at > revision)
        return blocks.astype(np.uint32), self._words[blocks]

    def flashes_after(self, seq: int) -> list[tuple[int, Touch, int, int]]:
        """The flashes of the records after `seq`, in order."""
        newest = itertools.takewhile(lambda flash: flash[0] > seq, reversed(self.flashes))
        return list(newest)[::-1]

    def _store(self, blocks: np.ndarray, words: np.ndarray) -> None:
        changed = (self._words[blocks] != words).any(axis=1)
        if changed.any():
            self.revision += 1
            blocks = blocks[changed]
            self._words[blocks] = words[changed]
            self._changed_at[blocks] = self.revision

    def _colour(self, state: PoolState, owners: dict[int, int]) -> int:
        request = state.sequences[next(iter(owners)) if len(owners) == 1 else min(owners)].request
        colour = self._colours.get(request)
        if colour is None:
            if len(self._colours) > 4096:
                self._colours.clear()
            colour = self._colours[request] = owner_colour(request)
        return colour

    def _expire(self, seq: int, touched: set[int]) -> None:
        while self._expiry and self._expiry[0][0] <= seq:
            end, block = self._expiry.popleft()
            if self._marks.get(block, (Mark.NONE, -1))[1] == end:
                del self._marks[block]
                touched.add(block)
        while self._touch_expiry and self._touch_expiry[0][0] <= seq:
            end, block = self._touch_expiry.popleft()
            if self._touches.get(block, (Touch.NONE, -1))[1] == end:
                del self._touches[block]
                touched.add(block)

    def _touched(self, state: PoolState, step: Step) -> set[int]:
        """Blocks that the step's events may have changed; sets and drops marks on the way."""
        touched: set[int] = set()
        last: dict[int, Touch] = {}
        flash, seq = self.flashes.append, step.seq
        for event in step.events:
            kind = type(event)
            if kind is Computed:
                touched.update(self._computed_blocks(state, event))
            elif kind is Allocate:
                last[event.block] = Touch.ALLOCATED
                if event.source is BlockSource.FREE:
                    flash((seq, Touch.ALLOCATED, event.block, -1))
                self._unmark(event.block, Mark.LOST)
            elif kind is Share:
                last[event.block] = Touch.SHARED
                self._unmark(event.block, Mark.LOST)
            elif kind is Release:
                preempted = event.why is ReleaseWhy.PREEMPTED
                last[event.block] = Touch.PREEMPTED if preempted else Touch.RELEASED
                if event.left == 0:
                    self._unmark(event.block, Mark.COPIED)
                    if preempted:
                        self._set_mark(event.block, Mark.LOST, seq)
                        flash((seq, Touch.PREEMPTED, event.block, -1))
            elif kind is CopyOnWrite:
                last[event.source] = Touch.RELEASED
                last[event.target] = Touch.COPIED
                self._set_mark(event.target, Mark.COPIED, seq)
                flash((seq, Touch.COPIED, event.target, event.source))
            elif kind is Cache:
                last[event.block] = Touch.CACHED
            elif kind is Evict:
                last[event.block] = Touch.EVICTED
                flash((seq, Touch.EVICTED, event.block, -1))
        for block, touch in last.items():
            self._touches[block] = (touch, seq + MARK_RECORDS)
            self._touch_expiry.append((seq + MARK_RECORDS, block))
        touched.update(last)
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
