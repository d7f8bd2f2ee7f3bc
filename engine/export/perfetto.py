"""A trace as a timeline for ui.perfetto.dev or chrome://tracing: the JSON Trace Event format.

    process "engine"      steps: one slice a step, in it schedule, model and sample; copies; preemptions
                          counters: blocks (free, cached, active), shared blocks, sequences by state
    process "requests"    one track a sequence: queued, prefill, decode, preempted, recompute

A flow (an arrow) goes from a step to each copy in it, and from a preemption to the step that resumed
the sequence. Times are microseconds since the trace's first keyframe. Written as it is read, so that a
long trace needs no more memory than a short one.
"""

from itertools import pairwise
from pathlib import Path

import msgspec

from engine.events.index import Progress
from engine.events.pool_state import PoolState
from engine.events.records import (
    Computed,
    CopyOnWrite,
    FinishReason,
    Fork,
    Gap,
    Header,
    Keyframe,
    Preempt,
    PrefixLookup,
    RequestAdded,
    RequestRejected,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    SequenceStatus,
    Step,
)
from engine.events.trace import TraceReader
from engine.export.trace_events import (
    COPIES,
    ENGINE,
    PREEMPTIONS,
    REQUESTS,
    STEPS,
    Event,
    TraceEvents,
    TraceEventWriter,
    open_target,
)

RECORDS_PER_TELL = 256


def export_perfetto(
    trace: Path, target: Path, progress: Progress = lambda done, total: None
) -> int:
    """Write the timeline to `target`, compressed where its name ends in .gz; returns its events.

    Raises TraceError for a bad trace, and then leaves no file; OSError where it can't be written.
    """
    with TraceReader(trace) as reader:
        size = reader.size
        try:
            with open_target(target) as file:
                writer = TraceEventWriter(file, reader.header)
                timeline = Timeline(reader.header)
                for number, (record, state) in enumerate(reader.fold()):
                    writer.write(timeline.record(record, state))
                    if number % RECORDS_PER_TELL == 0:
                        progress(reader.position, size)
                writer.write(timeline.end())
                writer.close()
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        progress(size, size)
        return writer.count


class _Track(msgspec.Struct):
    """One sequence: its open phase, and how far it has come. `tokens` None: not told."""

    request: str
    prompt: int
    phase: str
    since: float
    computed: int = 0
    tokens: int | None = None
    flow: int | None = None


class Timeline:
    """Turns each record, with the state after it, into trace events."""

    def __init__(self, header: Header) -> None:
        self._knows = frozenset(header.knows)
        self._start: float | None = None
        self._tracks: dict[int, _Track] = {}
        self._flows = 0
        self._now = 0.0
        self._events = TraceEvents()

    def record(self, record: Keyframe | Step | Gap, state: PoolState) -> list[Event]:
        """What this record adds to the timeline."""
        match record:
            case Keyframe():
                self._keyframe(record, state)
            case Step():
                self._step(record, state)
            case Gap():
                self._gap(record)
        return self._events.take()

    def end(self) -> list[Event]:
        """Close what is open where the trace ends."""
        for number in list(self._tracks):
            self._close(number, self._now, {"outcome": "unfinished when the trace ended"})
        return self._events.take()

    def _at(self, time: float) -> float:
        """Microseconds since the start; what was earlier, as an arrival, begins with the trace."""
        return round(max(0.0, (time - self._start) * 1e6), 3)

    # -- records ------------------------------------------------------------------------------

    def _keyframe(self, keyframe: Keyframe, state: PoolState) -> None:
        first = self._start is None
        if first:
            self._start = keyframe.time
            for process, name in ((ENGINE, "engine"), (REQUESTS, "requests")):
                self._events.name("process_name", process, 0, name)
            for thread, name in (
                (STEPS, "steps"),
                (COPIES, "copies"),
                (PREEMPTIONS, "preemptions"),
            ):
                self._events.name("thread_name", ENGINE, thread, name)
        if first or not self._tracks:
            self._load(keyframe, state)

    def _load(self, keyframe: Keyframe, state: PoolState) -> None:
        at = self._at(keyframe.time)
        for row in state.sequences.values():
            request = state.requests[row.request]
            phase = "decode" if row.computed >= request.prompt_tokens else "prefill"
            if row.status is not SequenceStatus.RUNNING:
                phase = "queued" if row.status is SequenceStatus.WAITING else "preempted"
            track = self._open_track(row.sequence, row.request, request.prompt_tokens, at, phase)
            track.computed = row.computed
            track.tokens = None if row.text is None else len(row.text)

    def _gap(self, gap: Gap) -> None:
        """What was open may have ended where nobody saw it."""
        args = {"records": gap.count, "why": gap.why}
        self._events.instant(STEPS, f"{gap.count} records left out", self._now, args)
        for number in list(self._tracks):
            self._close(number, self._now, {"outcome": "unknown: records were left out"})

    def _step(self, step: Step, state: PoolState) -> None:
        spent = step.durations
        begin, planned = self._at(step.time), self._at(step.time + spent.schedule)
        ran = self._at(step.time + spent.schedule + spent.model)
        end = self._at(step.time + spent.schedule + spent.model + spent.sample)
        self._now = max(self._now, end)
        tokens = step.tokens
        args = {"seq": step.seq, "step": step.step, "prefill": tokens.prefill,
                "decode": tokens.decode, "recompute": tokens.recompute}  # fmt: skip
        if tokens.total:
            self._events.slice(STEPS, "step", begin, round(end - begin, 3), args)
            if "durations" in self._knows:
                parts = (
                    ("schedule", begin, planned),
                    ("model", planned, ran),
                    ("sample", ran, end),
                )
                for name, since, until in parts:
                    self._events.slice(STEPS, name, since, round(until - since, 3), {})
        copies = [event for event in step.events if isinstance(event, CopyOnWrite)]
        self._copies(copies, begin, planned, ran)
        for event in step.events:
            self._event(event, begin, end)
        if "physical_blocks" in self._knows:
            counts = {"free": state.free_blocks, "cached": state.cached_blocks,
                      "active": state.active_blocks}  # fmt: skip
            self._events.counter("blocks", end, counts)
        if "ref_counts" in self._knows:
            self._events.counter("shared blocks", end, {"shared": state.shared_blocks})
        if "queues" in self._knows:
            self._events.counter("sequences", end, msgspec.structs.asdict(step.queues))

    def _copies(self, copies: list[CopyOnWrite], begin: float, since: float, until: float) -> None:
        """They run before the forward pass, in its measured time: each gets an equal part of that."""
        if not copies:
            return
        parts = len(copies)
        edges = [round(since + (until - since) * part / parts, 3) for part in range(parts + 1)]
        for event, (at, then) in zip(copies, pairwise(edges), strict=True):
            args = {"source": event.source, "target": event.target, "sequence": event.sequence}
            name = f"copy {event.source} to {event.target}"
            self._events.slice(COPIES, name, at, round(then - at, 3), args)
            self._flows += 1
            self._events.flow("s", self._flows, STEPS, "copy-on-write", begin)
            self._events.flow("f", self._flows, COPIES, "copy-on-write", at)

    def _event(self, event: object, begin: float, end: float) -> None:
        match event:
            case RequestAdded():
                self._open_track(
                    event.sequence, event.request, event.prompt_tokens, self._at(event.arrived)
                )
            case SequenceScheduled():
                track = self._tracks[event.sequence]
                first = event.kind is ScheduledKind.FIRST
                self._enter(event.sequence, "prefill" if first else "recompute", begin)
                if track.flow is not None:
                    args = {"sequence": event.sequence, "request": track.request}
                    self._events.slice(PREEMPTIONS, f"resumed {event.sequence}", begin, 0.0, args)
                    self._events.flow("f", track.flow, PREEMPTIONS, "preemption", begin)
                    track.flow = None
            case PrefixLookup():
                track = self._tracks[event.sequence]
                track.computed, track.tokens = event.hit, event.queried
            case Computed():
                track = self._tracks[event.sequence]
                track.computed += event.tokens
                if track.computed == track.tokens:
                    track.tokens += 1
                    self._enter(event.sequence, "decode", end)
            case Fork():
                parent = self._tracks[event.parent]
                child = self._open_track(event.child, parent.request, parent.prompt, end, "decode")
                child.computed, child.tokens = parent.computed, parent.tokens
            case Preempt():
                self._preempt(event, begin)
            case SequenceFinished():
                args = {"outcome": event.reason, "output_tokens": event.output_tokens}
                aborted = event.reason is FinishReason.ABORT
                self._close(event.sequence, begin if aborted else end, args)
            case RequestRejected():
                args = {"request": event.request, "why": event.why}
                self._events.instant(STEPS, f"rejected {event.request}", begin, args)

    def _preempt(self, event: Preempt, begin: float) -> None:
        track = self._tracks[event.sequence]
        track.computed = 0
        args = {"sequence": event.sequence, "request": track.request,
                "victim_of": event.victim_of, "blocks_released": event.blocks_released,
                "tokens_lost": event.tokens_lost}  # fmt: skip
        name = f"preempted {event.sequence} for {event.victim_of}"
        self._events.slice(PREEMPTIONS, name, begin, 0.0, args)
        self._events.instant(STEPS, name, begin, args)
        self._flows += 1
        track.flow = self._flows
        self._events.flow("s", track.flow, PREEMPTIONS, "preemption", begin)
        self._enter(event.sequence, "preempted", begin)

    # -- tracks -------------------------------------------------------------------------------

    def _open_track(
        self, number: int, request: str, prompt: int, at: float, phase: str = "queued"
    ) -> _Track:
        track = self._tracks[number] = _Track(request, prompt, phase, at, tokens=prompt)
        self._events.phase("b", number, f"{request} ({number})", at, {"prompt_tokens": prompt})
        self._events.phase("b", number, phase, at, {})
        return track

    def _enter(self, number: int, phase: str, at: float) -> None:
        track = self._tracks[number]
        if track.phase != phase:
            # Clocks of different threads may differ a little; a phase never ends before it began.
            track.since = max(track.since, at)
            self._events.phase("e", number, track.phase, track.since, {})
            self._events.phase("b", number, phase, track.since, {})
            track.phase = phase

    def _close(self, number: int, at: float, args: Event) -> None:
        track = self._tracks.pop(number)
        at = max(track.since, at)
        self._events.phase("e", number, track.phase, at, {})
        self._events.phase("e", number, f"{track.request} ({number})", at, args)
