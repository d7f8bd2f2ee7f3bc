"""How the dashboard looks back: what a moment is, and the records of the recent past.

    engine ── stream ─┐                            ┌─ Session A: live
                      ├─► Feed ─► Scene (newest)  ─┤
    trace ─── file ───┘    │                       └─ Session B: live
                           ├─► Past      keyframes and encoded records, by seq
                           ├─► History   one row a record: when, what, how many
                           └─► Journal   sentences and ended requests, by seq
                                  │
                                  └─► Session C, rewound to seq 412: a Scene of its own,
                                      folded from the past, moved by its player

A *moment* is "live" (the newest record, whatever it becomes) or one seq. It belongs to a browser
session (session.py): the canvas's socket and every fragment of that session ask the same Session
and so show the same moment. A source has one feed in the server, whoever watches; what lies behind
the moment (figures over the last minute, the ticker, the chart) is cut from History and Journal at
the moment's seq, so a rewound page shows nothing that was not known then.

Memory here is bounded: a live engine's past is dropped from its old end, segment by segment.
"""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pyzstd

from engine.events import PoolState, decode, encode
from engine.events.records import Header, Step

LIVE_BYTES = 64 * 1024 * 1024
"""What a live engine's past may take, compressed."""
SEGMENT_BYTES = 128 * 1024
SEGMENT_RECORDS = 512
"""A segment ends after so many records, or when they are longer than this and half its keyframe:
folding them then takes about as long as loading it."""


class PastError(LookupError):
    """The record asked for is not there (any more). The message says what is."""


class Past(Protocol):
    """The records of a source by `seq`; -1 is the state before the first one.

    Where records are missing there are holes: `nearest` finds the way around them.
    """

    @property
    def first_seq(self) -> int: ...

    @property
    def last_seq(self) -> int: ...

    def nearest(self, seq: int, forward: bool = False) -> int:
        """`seq` if its state can be had; else the last one before (or after, `forward`)."""
        ...

    def run_start(self, seq: int) -> int:
        """The first state from which the records lead to `seq` without a hole. Raises PastError."""
        ...

    def state_at(self, seq: int) -> PoolState:
        """A state of the caller's own, after record `seq`. Raises PastError."""
        ...

    def records(self, after: int, upto: int) -> Iterator[Step]:
        """The step records in (after, upto]; those in holes are left out."""
        ...


@dataclass
class _Segment:
    """A keyframe after record `first`, and the lines of the records `first` + 1 .. `last`."""

    first: int
    keyframe: bytes
    keyframe_bytes: int
    lines: list[bytes] | None = field(default_factory=list)
    line_bytes: int = 0
    packed: bytes = b""
    count: int = 0

    @property
    def last(self) -> int:
        return self.first + self.count

    @property
    def size(self) -> int:
        return len(self.keyframe) + (len(self.packed) if self.lines is None else self.line_bytes)

    def seal(self) -> None:
        """No more lines come: they are kept compressed from now on."""
        self.packed = pyzstd.compress(b"\n".join(self.lines), 1) if self.lines else b""
        self.lines = None

    def read(self, start: int, end: int) -> list[bytes]:
        """Lines `start` .. `end` - 1, counted from the keyframe."""
        lines = self.lines
        if lines is None:
            lines = pyzstd.decompress(self.packed).split(b"\n") if self.packed else []
        return lines[start:end]


class Memory:
    """The recent past of a source, in memory. One thread writes, any may read."""

    def __init__(self, header: Header, limit: int | None = LIVE_BYTES) -> None:
        """`limit` bytes are kept at most (and always the newest segment); None keeps all."""
        self._header = header
        self._limit = limit
        self._lock = threading.Lock()
        self._segments: deque[_Segment] = deque()

    @property
    def size(self) -> int:
        """Bytes in use."""
        with self._lock:
            return sum(segment.size for segment in self._segments)

    @property
    def first_seq(self) -> int:
        return self._segments[0].first if self._segments else -1

    @property
    def last_seq(self) -> int:
        return self._segments[-1].last if self._segments else -1

    def begin(self, state: PoolState) -> None:
        """Start a segment at `state`: at the beginning, after missing records, or to seek faster."""
        line = encode(state.keyframe())
        segment = _Segment(state.seq, pyzstd.compress(line, 1), len(line))
        with self._lock:
            if self._segments and self._segments[-1].lines is not None:
                self._segments[-1].seal()
            self._segments.append(segment)
            self._forget()

    def append(self, line: bytes, state: PoolState) -> None:
        """Add the encoded record that `state` has just applied."""
        with self._lock:
            segment = self._segments[-1]
            segment.lines.append(line)
            segment.line_bytes += len(line)
            segment.count += 1
            full = segment.count >= SEGMENT_RECORDS or segment.line_bytes >= max(
                SEGMENT_BYTES, segment.keyframe_bytes // 2
            )
        if full:
            self.begin(state)

    def _forget(self) -> None:
        if self._limit is None:
            return
        size = sum(segment.size for segment in self._segments)
        while size > self._limit and len(self._segments) > 1:
            size -= self._segments.popleft().size

    def nearest(self, seq: int, forward: bool = False) -> int:
        """See Past. Raises PastError while there is nothing at all."""
        with self._lock:
            segments = list(self._segments)
        if not segments:
            raise PastError("nothing has been recorded yet")
        at = bisect_right(segments, seq, key=lambda segment: segment.first) - 1
        if at < 0:
            return segments[0].first
        if seq <= segments[at].last:
            return seq
        if forward and at + 1 < len(segments):
            return segments[at + 1].first
        return segments[at].last

    def run_start(self, seq: int) -> int:
        """See Past."""
        segments, at = self._find(seq)
        while at and segments[at - 1].last == segments[at].first:
            at -= 1
        return segments[at].first

    def state_at(self, seq: int) -> PoolState:
        """See Past. Costs a keyframe and at most one segment of records."""
        segments, at = self._find(seq)
        segment = segments[at]
        state = PoolState(self._header)
        state.apply(decode(pyzstd.decompress(segment.keyframe)))
        for line in segment.read(0, seq - segment.first):
            state.apply(decode(line))
        return state

    def records(self, after: int, upto: int) -> Iterator[Step]:
        """See Past."""
        with self._lock:
            segments = [s for s in self._segments if s.last > after and s.first < upto]
        for segment in segments:
            start, end = max(0, after - segment.first), min(segment.count, upto - segment.first)
            for line in segment.read(start, end):
                yield decode(line)

    def _find(self, seq: int) -> tuple[list[_Segment], int]:
        with self._lock:
            segments = list(self._segments)
        at = bisect_right(segments, seq, key=lambda segment: segment.first) - 1
        if at < 0 or seq > segments[at].last:
            kept = f"records {segments[0].first} to {segments[-1].last}" if segments else "nothing"
            raise PastError(f"record {seq} is not kept: there is {kept}")
        return segments, at
