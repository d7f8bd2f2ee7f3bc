"""One source, folded: its newest state and its past, and the only place that changes them.

A pump (live.py, replay.py) hands records in from its thread; sessions and pages read.

    records -> Feed.apply -> Scene          (the newest PoolState and its cells)
                          -> Memory         (records and keyframes, to go back)
                          -> History        (rows for rates, charts, the scrubber)
                          -> Journal        (sentences and ended requests)
                          -> PreemptionLog  (what each preemption cost)
"""

import threading
import time
from dataclasses import dataclass
from enum import StrEnum

from dashboard.history import History
from dashboard.journal import EndedRequest, Journal, Line
from dashboard.past import LIVE_BYTES, Memory, Past
from dashboard.preemption_log import Preemption, PreemptionLog
from dashboard.recorded import TRACE_BYTES, RecordedPast
from dashboard.scene import Scene
from engine.events import encode
from engine.events.records import Gap, Header, Keyframe, Step
from engine.events.seek import SeekableTrace


class Phase(StrEnum):
    """How far the newest state can be trusted as now."""

    CONNECTING = "connecting"
    LIVE = "live"
    READING = "reading"
    RECORDED = "recorded"
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
        """Whether the newest state may be shown as such."""
        return self.phase in (Phase.LIVE, Phase.READING, Phase.RECORDED)


class Feed:
    """Written by one pump thread, read by any. `version` grows with every visible change.

    `live` tells an engine from a recording: only an engine has a now. `generation` grows when the
    engine turns out to be another one, whose past is not the old one's.
    """

    def __init__(self, source_name: str, live: bool) -> None:
        self.source_name = source_name
        self.live = live
        self.version = 0
        self.generation = 0
        self.scene = Scene()
        self.history = History()
        self.past: Past | None = None
        self.last_arrival = 0.0
        self.lag: float | None = None
        self._memory: Memory | None = None
        self._journal = Journal()
        self._preemptions = PreemptionLog()
        self._lock = threading.Lock()
        self._status = Status(Phase.CONNECTING, f"connecting to {source_name}")

    # -- for the pump ---------------------------------------------------------------------------

    def begin(self, header: Header) -> None:
        """A header came: the records after it are about this pool, and a keyframe is next.

        The past is kept for an engine that is the same one as before.
        """
        with self._lock:
            before = self.header
            self.scene.begin(header)
            if before is None or not _same_pool(before, header):
                self.generation += 1
                self.history, self._journal = History(), Journal()
                self._preemptions = PreemptionLog()
                self._memory = Memory(header, LIVE_BYTES if self.live else TRACE_BYTES)
                self.past = self._memory
            self.version += 1

    def back_with(self, trace: SeekableTrace) -> None:
        """What memory cannot hold of this feed's past is in `trace`."""
        self.past = RecordedPast(self._memory, trace)

    def apply(self, record: Keyframe | Step | Gap, line: bytes | None = None) -> None:
        """Fold one record; `line` is its encoded form, where it is at hand.

        Raises FoldError; then only a keyframe or a new header goes on.
        """
        with self._lock:
            unbroken = self.scene.apply(record)
            state = self.scene.state
            match record:
                case Step():
                    self.history.add(self.scene.grid, record)
                    self._journal.note(state, record)
                    self._preemptions.note(record)
                    self._memory.append(line or encode(record), state)
                    self._note_arrival(record)
                case Keyframe():
                    if not unbroken:
                        self.history.interrupt()
                        self._memory.begin(state)
                    self._journal.load(state)
                    self._preemptions.load(state, unbroken)
                    self.last_arrival = time.monotonic()
                case Gap():
                    self._journal.gap(record)
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

    def _note_arrival(self, step: Step) -> None:
        self.last_arrival = time.monotonic()
        if self.live:
            header, spent = self.header, step.durations
            ended = step.time + spent.schedule + spent.model + spent.sample
            self.lag = time.time() - header.wall_time - (ended - header.monotonic)

    # -- for views ------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return self._status

    @property
    def header(self) -> Header | None:
        state = self.scene.state
        return None if state is None else state.header

    def lines(self, count: int, upto: int | None = None) -> list[Line]:
        """The last `count` sentences known after record `upto` (None: now), newest first."""
        with self._lock:
            return self._journal.lines(count, upto)

    def ended(self, count: int, upto: int | None = None) -> list[EndedRequest]:
        """The last `count` requests that had ended by record `upto` (None: now), newest first."""
        with self._lock:
            return self._journal.ended(count, upto)

    def preemptions(self, upto: int | None = None) -> list[Preemption]:
        """Every preemption known after record `upto` (None: now) as a story, newest first."""
        with self._lock:
            return self._preemptions.stories(upto)


def _same_pool(one: Header, other: Header) -> bool:
    return (one.engine_id, one.num_blocks, one.block_size) == (
        other.engine_id,
        other.num_blocks,
        other.block_size,
    )
