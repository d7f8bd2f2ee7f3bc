"""One pool at one moment, as views read it: a PoolState with the words of its cells.

The feed's scene follows the newest record. A rewound session has a scene of its own, which its
player moves (session.py). Both are read by the same code.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from dashboard.cells import Grid, Touch
from dashboard.inspection import inspect_block
from engine.events import FoldError, PoolState
from engine.events.records import Gap, Header, Keyframe, Step

T = TypeVar("T")

FLASH_RECORDS = 50
"""Records back from which events are still news to a viewer that comes late."""


@dataclass(frozen=True)
class Cells:
    """Words for one viewer: all blocks (`blocks` None), or those that changed since its cursor.

    `words` is uint32 [blocks, 3], see dashboard/cells.py. `flashes` are the events since the seq
    that the viewer had: (seq, Touch, block, source block or -1).
    """

    cursor: tuple[int, int]
    seq: int
    step: int
    num_blocks: int
    blocks: np.ndarray | None
    words: np.ndarray
    flashes: list[tuple[int, Touch, int, int]]


class Scene:
    """`lock` guards everything; the methods take it, except those that say otherwise."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.epoch = 0
        self.state: PoolState | None = None
        self.grid: Grid | None = None

    # -- moving -----------------------------------------------------------------------------------

    def begin(self, header: Header) -> None:
        """Another stream starts: a keyframe is next."""
        with self.lock:
            self.state, self.grid = PoolState(header), None

    def apply(self, record: Keyframe | Step | Gap) -> bool:
        """Fold one record; True where nothing was missed before it. Raises FoldError."""
        with self.lock:
            state = self.state
            if state is None:
                raise FoldError("a record came before the header")
            unbroken = (
                state.complete and isinstance(record, Keyframe) and record.seq == state.seq
            ) or isinstance(record, Step)
            state.apply(record)
            if isinstance(record, Step):
                self.grid.follow(state, record)
            elif isinstance(record, Keyframe):
                self._load(unbroken)
            return unbroken

    def show(self, state: PoolState, records: Iterable[Step]) -> None:
        """Adopt a state that nobody else holds, and move on from it by `records`.

        Their marks are seen, their cells only at the end, which is much faster. Raises FoldError.
        """
        with self.lock:
            self.state = state
            grid = self._fitting_grid()
            grid.forget_marks()
            for record in records:
                state.apply(record)
                grid.note(state, record)
            grid.rebuild(state, keep_marks=True)

    def _load(self, unbroken: bool) -> None:
        self._fitting_grid().rebuild(self.state, keep_marks=unbroken)

    def _fitting_grid(self) -> Grid:
        """The grid, a new one where the pool is of another shape."""
        state, grid = self.state, self.grid
        shape = (state.num_blocks, state.block_size)
        if grid is None or (grid.num_blocks, grid.block_size) != shape:
            self.epoch += 1
            grid = self.grid = Grid(state)
        return grid

    # -- reading ----------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        state = self.state
        return -1 if state is None else state.seq

    def read(self, reader: Callable[[PoolState], T]) -> T | None:
        """`reader` of the state, while nothing changes it; None while nothing is known."""
        with self.lock:
            if self.state is None or not self.state.complete:
                return None
            return reader(self.state)

    def cells(self, cursor: tuple[int, int], seen: int | None) -> Cells | None:
        """What changed since `cursor`; all where the pool is another; None before a keyframe.

        Flashes are those after record `seen`, FLASH_RECORDS at most; None asks for those of the
        record that is shown.
        """
        with self.lock:
            state, grid = self.state, self.grid
            if state is None or grid is None:
                return None
            epoch, revision = cursor
            whole = epoch != self.epoch
            blocks, words = grid.since(-1 if whole else revision)
            whole = whole or 2 * len(blocks) > state.num_blocks
            after = state.seq - 1 if seen is None else max(seen, state.seq - FLASH_RECORDS)
            return Cells(
                cursor=(self.epoch, grid.revision),
                seq=state.seq,
                step=state.step,
                num_blocks=state.num_blocks,
                blocks=None if whole else blocks,
                words=grid.words.copy() if whole else words,
                flashes=grid.flashes_after(after),
            )

    def inspect(self, block: int) -> dict[str, Any] | None:
        """All about one block; None where there is no such block or nothing is known."""
        with self.lock:
            state, grid = self.state, self.grid
            if state is None or grid is None or not state.complete:
                return None
            return inspect_block(state, grid, block) if 0 <= block < state.num_blocks else None
