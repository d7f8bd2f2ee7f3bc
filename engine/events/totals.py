"""Counters as a fold: the one place that says which event moves which counter."""

from engine.events.records import (
    Allocate,
    AllocationFailed,
    AnyEvent,
    BlockSource,
    CopyOnWrite,
    Evict,
    Preempt,
    PrefixLookup,
    Release,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    ScheduledKind,
    SequenceScheduled,
    Step,
    Totals,
)


def count_step(totals: Totals, step: Step) -> None:
    """Move `totals` by one step record."""
    tokens = step.tokens
    if tokens.total:
        totals.steps += 1
        totals.prefill_tokens += tokens.prefill
        totals.decode_tokens += tokens.decode
        totals.recompute_tokens += tokens.recompute
    for event in step.events:
        counter = _COUNTERS.get(type(event))
        if counter is not None:
            counter(totals, event)


def _handed_out(totals: Totals, source: BlockSource) -> None:
    if source is BlockSource.FREE:
        totals.allocated_free += 1
    else:
        totals.allocated_evicted += 1


def _allocate(totals: Totals, event: Allocate) -> None:
    _handed_out(totals, event.source)


def _cow(totals: Totals, event: CopyOnWrite) -> None:
    totals.cow_copies += 1
    _handed_out(totals, event.source_kind)


def _release(totals: Totals, event: Release) -> None:
    if event.left == 0:
        totals.released += 1


def _evict(totals: Totals, event: Evict) -> None:
    totals.evicted += 1


def _failed(totals: Totals, event: AllocationFailed) -> None:
    totals.allocation_failures += 1


def _added(totals: Totals, event: RequestAdded) -> None:
    totals.requests_added += 1


def _scheduled(totals: Totals, event: SequenceScheduled) -> None:
    if event.kind is ScheduledKind.FIRST:
        totals.scheduled_first += 1
    else:
        totals.scheduled_resumed += 1


def _preempt(totals: Totals, event: Preempt) -> None:
    totals.preemptions[event.why] = totals.preemptions.get(event.why, 0) + 1


def _lookup(totals: Totals, event: PrefixLookup) -> None:
    # What a preempted sequence finds again says nothing of how alike requests are.
    if not event.resumed:
        totals.prefix_queried_tokens += event.queried
        totals.prefix_hit_tokens += event.hit


def _finished(totals: Totals, event: RequestFinished) -> None:
    totals.requests_finished[event.reason] = totals.requests_finished.get(event.reason, 0) + 1


def _rejected(totals: Totals, event: RequestRejected) -> None:
    totals.requests_finished["rejected"] = totals.requests_finished.get("rejected", 0) + 1


_COUNTERS: dict[type[AnyEvent], object] = {
    Allocate: _allocate,
    CopyOnWrite: _cow,
    Release: _release,
    Evict: _evict,
    AllocationFailed: _failed,
    RequestAdded: _added,
    SequenceScheduled: _scheduled,
    Preempt: _preempt,
    PrefixLookup: _lookup,
    RequestFinished: _finished,
    RequestRejected: _rejected,
}
