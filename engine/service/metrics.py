"""/metrics: the pool for Prometheus, from one snapshot a scrape.

Every figure is read from the fold: the live keyframe, loaded into a PoolState in the scrape's own
thread, so that the engine's thread only copies.
"""

from collections.abc import Iterator
from itertools import accumulate

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from engine.events import PoolState
from engine.events.histograms import Histogram
from engine.events.records import FinishReason, Header, PreemptWhy, SequenceStatus
from engine.service.answer_models import errors
from engine.service.context import ServiceContext

router = APIRouter(tags=["server"])


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_model=None,
    responses={
        200: {
            "description": "The text exposition format",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    }
    | errors(401, 403, 503),
)
def metrics(http: Request) -> Response:
    """Every figure comes from one snapshot of the pool."""
    context: ServiceContext = http.app.state.context
    state = PoolState(context.header)
    state.apply(context.engine.snapshot().result().keyframe())
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_PoolFamilies(state))
    registry.register(_StreamFamilies(context))
    return Response(exposition.generate_latest(registry), media_type=exposition.CONTENT_TYPE_LATEST)


class _PoolFamilies(Collector):
    """The metric families of one snapshot of the pool."""

    def __init__(self, state: PoolState) -> None:
        self.state = state

    def collect(self) -> Iterator[Metric]:
        state, totals = self.state, self.state.totals
        yield _gauge(
            "blocks",
            "Blocks by state; the states are disjoint and sum to blocks_capacity",
            "state",
            {
                "free": state.free_blocks,
                "cached": state.cached_blocks,
                "active": state.active_blocks,
            },
        )
        yield _gauge("blocks_capacity", "Blocks in the pool", None, state.num_blocks)
        yield _gauge("blocks_shared", "Blocks with ref count above 1", None, state.shared_blocks)
        yield _gauge("block_references", "Sum of ref counts", None, state.references)
        yield _gauge("block_size_tokens", "Slots in a block", None, state.block_size)
        yield _gauge(
            "slots_allocated",
            "Slots of active blocks, shared ones counted once",
            None,
            state.slots_allocated,
        )
        yield _gauge(
            "slots_filled", "Slots of active blocks that hold a token", None, state.slots_filled
        )
        yield _counter(
            "blocks_allocated",
            "Blocks handed out",
            "source",
            {"free": totals.allocated_free, "evicted": totals.allocated_evicted},
        )
        yield _counter("blocks_released", "Blocks whose ref count reached 0", None, totals.released)
        yield _counter(
            "blocks_evicted", "Cached blocks whose content was dropped", None, totals.evicted
        )
        yield _counter(
            "prefix_cache_queried_tokens",
            "Tokens of new requests looked up in the prefix index",
            None,
            totals.prefix_queried_tokens,
        )
        yield _counter(
            "prefix_cache_hit_tokens",
            "Of these, tokens whose blocks were found",
            None,
            totals.prefix_hit_tokens,
        )
        yield _counter("cow_copies", "Shared blocks copied before a write", None, totals.cow_copies)
        yield _counter(
            "allocation_failures",
            "Attempts for which no block could be had",
            None,
            totals.allocation_failures,
        )
        yield _counter(
            "preemptions",
            "Running sequences that lost their blocks",
            "reason",
            {str(why): totals.preemptions.get(why, 0) for why in PreemptWhy},
        )
        yield _counter(
            "computed_tokens",
            "Tokens run through the model, by kind of work",
            "work",
            {
                "prefill": totals.prefill_tokens,
                "decode": totals.decode_tokens,
                "recompute": totals.recompute_tokens,
            },
        )
        yield _gauge(
            "requests",
            "Unfinished requests; one runs if any of its sequences does",
            "state",
            _requests_by_state(state),
        )
        yield _counter(
            "requests_scheduled",
            "Sequences moved to running",
            "kind",
            {"new": totals.scheduled_first, "resumed": totals.scheduled_resumed},
        )
        yield _counter(
            "requests_finished",
            "Requests that left the engine",
            "reason",
            {
                str(reason): totals.requests_finished.get(reason, 0)
                for reason in (
                    FinishReason.STOP,
                    FinishReason.LENGTH,
                    FinishReason.ABORT,
                    "rejected",
                )
            },
        )
        yield _counter("steps", "Engine steps that ran the model", None, totals.steps)
        yield _histogram(
            "time_to_first_token_seconds",
            "From a request's arrival to its first token",
            totals.time_to_first_token,
        )
        yield _histogram(
            "inter_token_latency_seconds",
            "Between two tokens of a sequence, preemptions between them included",
            totals.inter_token_latency,
        )
        yield _histogram(
            "request_duration_seconds",
            "From a request's arrival to its end, aborted ones left out",
            totals.request_duration,
        )
        yield _histogram(
            "queue_duration_seconds",
            "From a request's arrival to the step that first runs it",
            totals.queue_duration,
        )
        yield _histogram("step_duration_seconds", "A step that ran the model", totals.step_duration)
        yield _histogram(
            "request_preemptions",
            "Preemptions of the sequences of a request that has finished",
            totals.request_preemptions,
        )
        yield _gauge(
            "last_step_timestamp_seconds",
            "When the newest record's step began, in Unix time",
            None,
            state.header.wall_time + state.time - state.header.monotonic,
        )
        yield _info(state.header)


class _StreamFamilies(Collector):
    """Who watches, and what did not reach them."""

    def __init__(self, context: ServiceContext) -> None:
        self.context = context

    def collect(self) -> Iterator[Metric]:
        viewers, recorder = self.context.viewers, self.context.engine.recorder
        yield _gauge("stream_clients", "Viewers of the event stream", None, len(viewers.connected))
        yield _gauge(
            "stream_queue_records",
            "Records that the slowest viewer has yet to get",
            None,
            viewers.longest_queue(self.context.event_log),
        )
        yield _counter(
            "stream_records_sent", "Step records sent, to all viewers together", None, viewers.sent
        )
        yield _counter(
            "stream_records_dropped",
            "Step records left out for a viewer or a recorder that was too slow",
            "reason",
            {
                "slow_viewer": viewers.dropped,
                "slow_recorder": 0 if recorder is None else recorder.lost,
            },
        )
        yield _counter("stream_resyncs", "Keyframes sent after a gap", None, viewers.resyncs)
        yield _histogram("stream_lag_seconds", "Age of a step record when it was sent", viewers.lag)


def _requests_by_state(state: PoolState) -> dict[str, int]:
    statuses: dict[str, set[SequenceStatus]] = {request: set() for request in state.requests}
    for sequence in state.sequences.values():
        statuses[sequence.request].add(sequence.status)
    counts = {"running": 0, "waiting": 0, "preempted": 0}
    for found in statuses.values():
        for status in (SequenceStatus.RUNNING, SequenceStatus.PREEMPTED, SequenceStatus.WAITING):
            if status in found:
                counts[status] += 1
                break
    return counts


def _gauge(
    name: str, text: str, label: str | None, values: int | dict[str, int]
) -> GaugeMetricFamily:
    return _fill(
        GaugeMetricFamily(f"glasspool_{name}", text, labels=[label] if label else None), values
    )


def _counter(
    name: str, text: str, label: str | None, values: int | dict[str, int]
) -> CounterMetricFamily:
    return _fill(
        CounterMetricFamily(f"glasspool_{name}", text, labels=[label] if label else None), values
    )


def _histogram(name: str, text: str, histogram: Histogram) -> HistogramMetricFamily:
    below = accumulate(histogram.counts)
    bounds = [*(floatToGoString(bound) for bound in histogram.bounds), "+Inf"]
    buckets = list(zip(bounds, below, strict=True))
    return HistogramMetricFamily(f"glasspool_{name}", text, buckets, histogram.sum)


def _info(header: Header) -> GaugeMetricFamily:
    names = ["version", "model", "policy"]
    values = [header.producer.version, header.model, str(header.config["policy"])]
    family = GaugeMetricFamily("glasspool_build_info", "What serves; always 1", labels=names)
    family.add_metric(values, 1)
    return family


def _fill(family: Metric, values: int | dict[str, int]) -> Metric:
    if isinstance(values, dict):
        for label, value in values.items():
            family.add_metric([label], value)
    else:
        family.add_metric([], values)
    return family
