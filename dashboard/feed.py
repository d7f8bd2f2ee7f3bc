"""One source, folded: the state that all views read, and the only place that changes it.

A pump (live.py, replay.py) hands records in from its thread; pages and sockets read under the lock.

    records -> Feed.apply -> PoolState -> Grid     (cells for the canvas)
                                       -> History  (points for charts)
                                       -> Journal  (lines and ended requests)
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import pandas as pd

from dashboard.cells import Grid
from dashboard.figures import Figures, read_figures
from dashboard.history import History
from dashboard.inspection import inspect_block
from dashboard.journal import EndedRequest, Journal, Line
from engine.events import FoldError, PoolState, check_state
from engine.events.records import Gap, Header, Keyframe, Step

T = TypeVar("T")

SNAPSHOT_SECONDS = 0.5
"""Sessions that ask within this time share one snapshot."""


class Phase(StrEnum):
    """How far the state can be trusted as now."""

    CONNECTING = "connecting"
    LIVE = "live"
    REPLAY = "replay"
    GAP = "gap"
    LOST = "lost"
    FAILED = "failed"


@dataclass(frozen=True)
class Status:
    """Where the feed stands, as one plain sentence. `warning` is what else a viewer must know."""

    phase: Phase
    text: str
    warning: str | None = None

    @property
    def current(self) -> bool:
        """Whether numbers may be shown as now."""
        return self.phase in (Phase.LIVE, Phase.REPLAY)


@dataclass(frozen=True)
class RequestLine:
    """An unfinished request: tokens with KV now, and block table entries of all its sequences."""

    request: str
    state: str
    prompt_tokens: int
    n: int
    blocks: int
    computed: int
    preemptions: int
    recomputed_tokens: int


@dataclass(frozen=True)
class Snapshot:
    """What a page shows at one moment. `figures` is None while nothing can be shown as now.

    `faults` are the conservation checks' sentences about that state; empty when all hold.
    """

    status: Status
    header: Header | None
    seq: int
    step: int
    figures: Figures | None
    faults: tuple[str, ...]
    unfinished: tuple[RequestLine, ...]
    ended: tuple[EndedRequest, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Cells:
    """Cells for one viewer: all of them, or those that changed since its cursor."""

    cursor: tuple[int, int]
    seq: int
    step: int
    num_blocks: int
    blocks: Any
    values: Any


class Feed:
    """Written by one pump thread, read by any. `version` grows with every visible change."""

    def __init__(self, source_name: str) -> None:
        self.source_name = source_name
        self.version = 0
        self._lock = threading.Lock()
        self._status = Status(Phase.CONNECTING, f"connecting to {source_name}")
        self._state: PoolState | None = None
        self._grid: Grid | None = None
        self._epoch = 0
        self._history = History()
        self._journal = Journal()
        self._last_arrival = 0.0
        self._snapshot: tuple[float, int, Snapshot] | None = None

    # -- for the pump ---------------------------------------------------------------------------

    def begin(self, header: Header) -> None:
        """A header came: the records after it are about this pool, and a keyframe is next.

        The past is kept for an engine that is the same one as before.
        """
        with self._lock:
            before = self._state
            self._state, self._grid = PoolState(header), None
            if before is None or not _same_pool(before.header, header):
                self._history, self._journal = History(), Journal()
            self.version += 1

    def forget(self) -> None:
        """Drop the past: a replay begins again."""
        with self._lock:
            self._history, self._journal = History(), Journal()

    def apply(self, record: Keyframe | Step | Gap) -> None:
        """Fold one record. Raises FoldError; then only a keyframe or a new header goes on."""
        with self._lock:
            state = self._state
            if state is None:
                raise FoldError("a record came before the header")
            seq = state.seq
            unbroken = state.complete and isinstance(record, Keyframe) and record.seq == seq
            state.apply(record)
            match record:
                case Step():
                    self._grid.follow(state, record)
                    self._history.add(state, self._grid, record)
                    self._journal.note(state, record)
                case Keyframe():
                    self._load(state, unbroken)
                case Gap():
                    self._journal.gap(record)
            self._last_arrival = time.monotonic()
            self.version += 1

    def say(self, status: Status) -> None:
        """Say where the feed stands now."""
        with self._lock:
            if status != self._status:
                self._status = status
                self.version += 1

    def missing(self, text: str) -> None:
        """Put into the ticker what the stream lacks."""
        with self._lock:
            self._journal.missing(text)
            self.version += 1

    def _load(self, state: PoolState, unbroken: bool) -> None:
        if self._grid is None or not unbroken:
            self._epoch += 1
            self._grid = Grid(state)
            self._history.interrupt(state.time)
        else:
            self._grid.rebuild(state, keep_marks=True)
        self._journal.load(state)

    # -- for views ------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return self._status

    @property
    def header(self) -> Header | None:
        state = self._state
        return None if state is None else state.header

    def read(self, reader: Callable[[PoolState], T]) -> T | None:
        """`reader` of the state, while nothing changes it; None before the first keyframe."""
        with self._lock:
            if self._state is None or not self._state.complete:
                return None
            return reader(self._state)

    def cells(self, cursor: tuple[int, int]) -> Cells | None:
        """What changed since `cursor`; all where the pool is another; None before a keyframe."""
        with self._lock:
            state, grid = self._state, self._grid
            if state is None or grid is None:
                return None
            epoch, revision = cursor
            whole = epoch != self._epoch
            blocks, values = grid.since(-1 if whole else revision)
            return Cells(
                cursor=(self._epoch, grid.revision),
                seq=state.seq,
                step=state.step,
                num_blocks=state.num_blocks,
                blocks=None if whole or 2 * len(blocks) > state.num_blocks else blocks,
                values=grid.cells.copy() if whole or 2 * len(blocks) > state.num_blocks else values,
            )

    def inspect(self, block: int) -> dict[str, Any] | None:
        """All about one block; None where there is no such block or nothing is known as now."""
        with self._lock:
            state, grid = self._state, self._grid
            if state is None or grid is None or not state.complete:
                return None
            return inspect_block(state, grid, block) if 0 <= block < state.num_blocks else None

    def history(self, steps: int) -> pd.DataFrame:
        """The last `steps` history points."""
        with self._lock:
            return self._history.table(steps)

    def snapshot(self) -> Snapshot:
        """The page's numbers, at most SNAPSHOT_SECONDS old."""
        with self._lock:
            now = time.monotonic()
            if self._snapshot is not None:
                taken, version, snapshot = self._snapshot
                if version == self.version and not snapshot.status.current:
                    return snapshot
                if now - taken < SNAPSHOT_SECONDS and snapshot.status == self._status:
                    return snapshot
            snapshot = self._take_snapshot(now)
            self._snapshot = (now, self.version, snapshot)
            return snapshot

    def _take_snapshot(self, now: float) -> Snapshot:
        state, journal = self._state, self._journal
        figures, faults, unfinished = None, [], []
        if state is not None and state.complete and self._status.current:
            # A trace is asked about its own time, an engine about ours: idle seconds count there.
            idle = now - self._last_arrival if self._status.phase is Phase.LIVE else 0.0
            rate = self._history.tokens_per_second(state.time + idle)
            figures = read_figures(state, rate)
            faults = check_state(state)
            unfinished = _request_lines(state)
        return Snapshot(
            status=self._status,
            header=None if state is None else state.header,
            seq=-1 if state is None else state.seq,
            step=-1 if state is None else state.step,
            figures=figures,
            faults=tuple(faults),
            unfinished=tuple(unfinished),
            ended=tuple(journal.ended),
            lines=tuple(journal.lines),
        )


def _same_pool(one: Header, other: Header) -> bool:
    return (one.engine_id, one.num_blocks, one.block_size) == (
        other.engine_id,
        other.num_blocks,
        other.block_size,
    )


def _request_lines(state: PoolState) -> list[RequestLine]:
    of_request: dict[str, list] = {request: [] for request in state.requests}
    for sequence in state.sequences.values():
        of_request[sequence.request].append(sequence)
    lines = []
    for request in state.requests.values():
        sequences = of_request[request.request]
        statuses = [sequence.status.value for sequence in sequences]
        lines.append(
            RequestLine(
                request=request.request,
                state=", ".join(
                    status if len(statuses) == 1 else f"{statuses.count(status)} {status}"
                    for status in ("running", "preempted", "waiting")
                    if status in statuses
                ),
                prompt_tokens=request.prompt_tokens,
                n=request.n,
                blocks=sum(len(sequence.table) for sequence in sequences),
                computed=sum(sequence.computed for sequence in sequences),
                preemptions=request.preemptions,
                recomputed_tokens=request.recomputed_tokens,
            )
        )
    return lines
