"""A trace that can be entered anywhere: the state at a record, records from there, searches.

    state_at(7300):   index -> frame of keyframe 5119 -> load it, fold records 5120..7300

A seek costs a keyframe and the records since, whatever the trace's length. The trace is only read,
and every call opens the file for itself, so one SeekableTrace serves any number of threads.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path

from engine.events.index import (
    Frame,
    Progress,
    StepHead,
    open_index,
    read_head,
)
from engine.events.lines import LineReader, TraceError
from engine.events.pool_contents import FoldError
from engine.events.pool_state import PoolState
from engine.events.records import (
    AllocationFailed,
    AnyEvent,
    CopyOnWrite,
    Evict,
    Gap,
    Header,
    Keyframe,
    Preempt,
    RequestAdded,
    RequestFinished,
    Step,
    Totals,
)
from engine.events.trace import read_header


class SeekableTrace:
    """A trace and its index.

    header: the trace's. keyframes: one Frame for each keyframe that can be jumped to, in order, each
    with seq, step, time and totals; the difference of two neighbours' totals tells what happened
    between. first_seq, last_seq: `state_at` takes these and all between. last_step, first_time and
    last_time (seconds, producer's clock) say how far the run goes. missing: what a damaged or cut-off
    trace lacks at its end, as a sentence, or None.
    """

    def __init__(self, path: Path | str, progress: Progress = lambda done, total: None) -> None:
        """Reads the index, or builds it (`progress` is told bytes done, of how many).

        Raises TraceError where the file is no trace.
        """
        self.path = Path(path)
        with LineReader(self.path) as lines:
            self.header: Header = read_header(lines)
        self._index = open_index(self.path, progress)
        self.keyframes: list[Frame] = self._index.frames
        self.first_seq = self.keyframes[0].seq
        self.last_seq = self._index.last_seq
        self.last_step = self._index.last_step
        self.first_time = self.keyframes[0].time
        self.last_time = self._index.last_time
        self.missing = self._index.missing

    def state_at(self, seq: int) -> PoolState:
        """A new PoolState as it was after record `seq`.

        Raises TraceError for a seq outside the trace or inside a gap, and where the trace is damaged
        or contradicts itself on the way there.
        """
        if not self.first_seq <= seq <= self.last_seq:
            ends = f"; {self.missing}" if self.missing and seq > self.last_seq else ""
            raise TraceError(
                f"{self.path} has no record {seq}: it goes from {self.first_seq} to "
                f"{self.last_seq}{ends}"
            )
        frame = self.keyframes[bisect_right(self.keyframes, seq, key=_seq) - 1]
        state = PoolState(self.header)
        with self._open(frame) as lines:
            while state.seq < seq or not state.complete:
                record = self._next(lines, seq)
                try:
                    state.apply(record)
                except FoldError as error:
                    raise TraceError(f"{lines.where}: {error}") from None
        if state.seq != seq:
            raise TraceError(f"{lines.where}: record {state.seq} stands where {seq} should be")
        return state

    def records_after(self, seq: int) -> Iterator[Keyframe | Step | Gap]:
        """Everything that follows record `seq`, to the trace's end, as TraceReader yields it.

        These go on from `state_at(seq)`. Raises TraceError where the trace is damaged.
        """
        frame = self.keyframes[max(0, bisect_right(self.keyframes, seq, key=_seq) - 1)]
        with self._open(frame) as lines:
            while (record := lines.record()) is not None:
                if isinstance(record, Header):
                    raise TraceError(f"{lines.where}: a second header")
                last = record.after + record.count if isinstance(record, Gap) else record.seq
                if last > seq:
                    yield record

    def seq_of_step(self, step: int) -> int:
        """The first record of engine step `step`, or of the next there is; the last one after the end."""
        place = max(0, bisect_left(self.keyframes, step, key=lambda frame: frame.step) - 1)
        for later in range(place, len(self.keyframes)):
            for head in self._heads(later):
                if head.step >= step:
                    return head.seq
        return self.last_seq

    def seq_at_time(self, time: float) -> int:
        """The last record that began at or before `time` (seconds, producer's clock)."""
        place = max(0, bisect_right(self.keyframes, time, key=lambda frame: frame.time) - 1)
        found = self.keyframes[place].seq
        for head in self._heads(place):
            if head.time > time:
                break
            found = head.seq
        return found

    def next_with(self, kinds: Iterable[type[AnyEvent]], after: int) -> int | None:
        """The first record beyond `after` with an event of one of these types; None without one.

        For the kinds that Totals counts, parts of the run that had none are not read.
        """
        kinds = tuple(kinds)
        first = max(0, bisect_right(self.keyframes, after, key=_seq) - 1)
        for place in range(first, len(self.keyframes)):
            if self._may_have(place, kinds):
                for step in self._steps(place):
                    if step.seq > after and any(isinstance(e, kinds) for e in step.events):
                        return step.seq
        return None

    def previous_with(self, kinds: Iterable[type[AnyEvent]], before: int) -> int | None:
        """The last record ahead of `before` with an event of one of these types; None without one."""
        kinds = tuple(kinds)
        for place in range(bisect_left(self.keyframes, before, key=_seq) - 1, -1, -1):
            found = None
            if self._may_have(place, kinds):
                for step in self._steps(place):
                    if step.seq >= before:
                        break
                    if any(isinstance(event, kinds) for event in step.events):
                        found = step.seq
            if found is not None:
                return found
        return None

    def _may_have(self, place: int, kinds: tuple[type[AnyEvent], ...]) -> bool:
        if place + 1 == len(self.keyframes):
            return True
        before, after = self.keyframes[place].totals, self.keyframes[place + 1].totals
        counts = [_COUNTS.get(kind) for kind in kinds]
        return any(count is None or count(before) != count(after) for count in counts)

    def _open(self, frame: Frame) -> LineReader:
        """The frame's lines, its keyframe first."""
        lines = LineReader(self.path, frame.offset)
        if frame.offset == 0:
            lines.line()
        return lines

    def _next(self, lines: LineReader, seq: int) -> Keyframe | Step | Gap:
        """The next record on the way to `seq`."""
        record = lines.record()
        match record:
            case None:
                raise TraceError(f"{self.path} ends before record {seq}: it has changed")
            case Header():
                raise TraceError(f"{lines.where}: a second header")
            case Gap() if record.after < seq < record.after + record.count:
                raise TraceError(
                    f"{lines.where}: record {seq} was left out, as were all from "
                    f"{record.after + 1} to {record.after + record.count} ({record.why})"
                )
        return record

    def _steps(self, place: int) -> Iterator[Step]:
        """The whole step records of one keyframe's part of the trace."""
        end = self._end(place)
        for record in self.records_after(self.keyframes[place].seq):
            if isinstance(record, Step):
                if end is not None and record.seq > end:
                    return
                yield record

    def _heads(self, place: int) -> Iterator[StepHead]:
        """The same, without their events."""
        end = self._end(place)
        with self._open(self.keyframes[place]) as lines:
            while (head := read_head(lines)) is not None:
                if isinstance(head, StepHead):
                    if end is not None and head.seq > end:
                        return
                    yield head

    def _end(self, place: int) -> int | None:
        """The last record of a keyframe's part; None for the last part."""
        return self.keyframes[place + 1].seq if place + 1 < len(self.keyframes) else None


def _seq(frame: Frame) -> int:
    return frame.seq


def _preemptions(totals: Totals) -> int:
    return sum(totals.preemptions.values())


def _finished(totals: Totals) -> int:
    return sum(totals.requests_finished.values())


_COUNTS: dict[type[AnyEvent], Callable[[Totals], int]] = {
    Preempt: _preemptions,
    CopyOnWrite: attrgetter("cow_copies"),
    Evict: attrgetter("evicted"),
    AllocationFailed: attrgetter("allocation_failures"),
    RequestAdded: attrgetter("requests_added"),
    RequestFinished: _finished,
}
