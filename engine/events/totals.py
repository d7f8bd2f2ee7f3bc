"""Counters and latencies as a fold: the one place that says which event moves which of them.

A token's time is the end of the step that drew it. Who drew in a step follows from the records: a
sequence does when all of its tokens have KV, so each `computed` event that reaches the last token
known so far stands for one more.

    prompt of 20          computed 16      computed 4         computed 1      computed 1
    known 20              16 < 20          20: first token    21: next one    22: next one
"""

from engine.events.histograms import Histogram
from engine.events.records import (
    Allocate,
    AllocationFailed,
    AnyEvent,
    BlockSource,
    Computed,
    CopyOnWrite,
    Evict,
    FinishReason,
    Fork,
    Keyframe,
    Preempt,
    PrefixLookup,
    Release,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Step,
    Totals,
)


class SequenceClock:
    """`known` tokens of a sequence exist, `computed` have KV; the last was drawn at `last_token`."""

    __slots__ = ("computed", "known", "last_token", "request")

    def __init__(
        self, request: "RequestClock", known: int, computed: int, last_token: float | None
    ) -> None:
        self.request = request
        self.known = known
        self.computed = computed
        self.last_token = last_token


class RequestClock:
    """When a request arrived, and when its first token was drawn."""

    __slots__ = ("arrived", "first_token", "prompt_tokens")

    def __init__(self, arrived: float, prompt_tokens: int, first_token: float | None) -> None:
        self.arrived = arrived
        self.prompt_tokens = prompt_tokens
        self.first_token = first_token


class Tally:
    """`totals` after the records applied so far, and what is needed to go on.

    `waits`: seconds that sequences waited for the tokens of the last record since the one before, each
    with the number of sequences that waited so long.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.sequences: dict[int, SequenceClock] = {}
        self.requests: dict[str, RequestClock] = {}
        self.waits: list[tuple[float, int]] = []
        self._time = 0.0
        self._end = 0.0

    def output_tokens(self, sequence: int) -> int:
        clock = self.sequences[sequence]
        return clock.known - clock.request.prompt_tokens

    def load(self, keyframe: Keyframe) -> None:
        """Go on from a keyframe."""
        self.totals = copy_totals(keyframe.totals)
        self.requests = {
            row.request: RequestClock(row.arrived, row.prompt_tokens, row.first_token)
            for row in keyframe.requests
        }
        self.sequences = {}
        for row in keyframe.sequences:
            request = self.requests[row.request]
            known = request.prompt_tokens + row.output_tokens
            self.sequences[row.sequence] = SequenceClock(
                request, known, row.computed, row.last_token
            )

    def apply(self, step: Step) -> None:
        """Move on by one step record. Raises KeyError for a sequence or request that is unknown."""
        totals, tokens, durations = self.totals, step.tokens, step.durations
        self._time = step.time
        seconds = durations.schedule + durations.model + durations.sample
        self._end = end = step.time + seconds
        if tokens.total:
            totals.steps += 1
            totals.prefill_tokens += tokens.prefill
            totals.decode_tokens += tokens.decode
            totals.recompute_tokens += tokens.recompute
            totals.step_duration.observe(seconds)
        sequences = self.sequences
        counters = _COUNTERS
        self.waits = waits = []
        # Sequences that decode side by side wait equally long: one observation for all of them.
        gap, equal = 0.0, 0
        for event in step.events:
            kind = type(event)
            if kind is Computed:
                clock = sequences[event.sequence]
                computed = clock.computed = clock.computed + event.tokens
                if computed < clock.known:
                    continue
                clock.known = computed + 1
                last = clock.last_token
                clock.last_token = end
                if last is None:
                    self._first_token(clock)
                elif end - last == gap:
                    equal += 1
                else:
                    if equal:
                        waits.append((gap, equal))
                    gap, equal = end - last, 1
                continue
            counter = counters.get(kind)
            if counter is not None:
                counter(self, event)
        if equal:
            waits.append((gap, equal))
        for gap, equal in waits:
            totals.inter_token_latency.observe(gap, equal)

    def _first_token(self, clock: SequenceClock) -> None:
        request = clock.request
        if request.first_token is None:
            request.first_token = self._end
            self.totals.time_to_first_token.observe(self._end - request.arrived)

    def _handed_out(self, source: BlockSource) -> None:
        if source is BlockSource.FREE:
            self.totals.allocated_free += 1
        else:
            self.totals.allocated_evicted += 1

    def _allocate(self, event: Allocate) -> None:
        self._handed_out(event.source)

    def _cow(self, event: CopyOnWrite) -> None:
        self.totals.cow_copies += 1
        self._handed_out(event.source_kind)

    def _release(self, event: Release) -> None:
        if event.left == 0:
            self.totals.released += 1

    def _evict(self, event: Evict) -> None:
        self.totals.evicted += 1

    def _failed(self, event: AllocationFailed) -> None:
        self.totals.allocation_failures += 1

    def _added(self, event: RequestAdded) -> None:
        self.totals.requests_added += 1
        request = RequestClock(event.arrived, event.prompt_tokens, None)
        self.requests[event.request] = request
        self.sequences[event.sequence] = SequenceClock(request, event.prompt_tokens, 0, None)

    def _scheduled(self, event: SequenceScheduled) -> None:
        if event.kind is ScheduledKind.FIRST:
            self.totals.scheduled_first += 1
            request = self.sequences[event.sequence].request
            self.totals.queue_duration.observe(max(0.0, self._time - request.arrived))
        else:
            self.totals.scheduled_resumed += 1

    def _fork(self, event: Fork) -> None:
        parent = self.sequences[event.parent]
        self.sequences[event.child] = SequenceClock(
            parent.request, parent.known, parent.computed, parent.last_token
        )

    def _preempt(self, event: Preempt) -> None:
        preemptions = self.totals.preemptions
        preemptions[event.why] = preemptions.get(event.why, 0) + 1
        self.sequences[event.sequence].computed = 0

    def _lookup(self, event: PrefixLookup) -> None:
        self.sequences[event.sequence].computed = event.hit
        # What a preempted sequence finds again says nothing of how alike requests are.
        if not event.resumed:
            self.totals.prefix_queried_tokens += event.queried
            self.totals.prefix_hit_tokens += event.hit

    def _sequence_finished(self, event: SequenceFinished) -> None:
        del self.sequences[event.sequence]

    def _finished(self, event: RequestFinished) -> None:
        del self.requests[event.request]
        finished = self.totals.requests_finished
        finished[event.reason] = finished.get(event.reason, 0) + 1
        self.totals.request_preemptions.observe(event.preemptions)
        # How long a request took that its client gave up says nothing of the engine.
        if event.reason is not FinishReason.ABORT:
            self.totals.request_duration.observe(event.duration_seconds)

    def _rejected(self, event: RequestRejected) -> None:
        finished = self.totals.requests_finished
        finished["rejected"] = finished.get("rejected", 0) + 1


def copy_totals(totals: Totals) -> Totals:
    """A copy that shares nothing with the original."""
    fields = {name: getattr(totals, name) for name in totals.__struct_fields__}
    return Totals(
        **{
            name: value.copy() if isinstance(value, dict | Histogram) else value
            for name, value in fields.items()
        }
    )


_COUNTERS: dict[type[AnyEvent], object] = {
    Allocate: Tally._allocate,
    CopyOnWrite: Tally._cow,
    Release: Tally._release,
    Evict: Tally._evict,
    AllocationFailed: Tally._failed,
    RequestAdded: Tally._added,
    SequenceScheduled: Tally._scheduled,
    Fork: Tally._fork,
    Preempt: Tally._preempt,
    PrefixLookup: Tally._lookup,
    SequenceFinished: Tally._sequence_finished,
    RequestFinished: Tally._finished,
    RequestRejected: Tally._rejected,
}
