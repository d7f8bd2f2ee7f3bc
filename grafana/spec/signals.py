"""The figures that alerts are about, recorded by Prometheus by job and instance.

Each is one number an engine, never NaN: idle is 0 waste, not an unknown share of nothing. So an
alert is plain comparisons, in Prometheus and in Grafana alike.
"""

from dataclasses import dataclass

from grafana.spec.metrics import series
from grafana.spec.parameters import Parameters

FREE_OR_CACHED = ("free", "cached")
BLOCKED = ("waiting", "preempted")
_BY = "by (job, instance)"


@dataclass(frozen=True)
class Signal:
    """A recording rule: `record` is the recorded name. `meaning` is for people, with its window."""

    record: str
    expr: str
    meaning: str


@dataclass(frozen=True)
class Signals:
    """All of them. Those with the same window are the same rule."""

    waste_short: Signal
    waste_long: Signal
    waste_budget: Signal
    preemptions_long: Signal
    preemptions_budget: Signal
    request_preemptions: Signal
    finished_requests: Signal
    available_blocks: Signal
    blocked_requests: Signal
    steps: Signal
    unfinished_requests: Signal
    dropped_records: Signal

    def rules(self) -> list[Signal]:
        """In the order of evaluation, each name once."""
        return list(dict.fromkeys(vars(self).values()))


def signals(parameters: Parameters) -> Signals:
    windows = parameters.windows
    return Signals(
        waste_short=_waste(windows.page_short),
        waste_long=_waste(windows.page_long),
        waste_budget=_waste(windows.budget),
        preemptions_long=_preemptions(windows.page_long),
        preemptions_budget=_preemptions(windows.budget),
        request_preemptions=_request_preemptions(windows.requests),
        finished_requests=Signal(
            f"job_instance:glasspool_requests_finished:increase{windows.requests}",
            f"sum {_BY} (increase({series('request_preemptions_count')}[{windows.requests}]))",
            f"requests finished in {windows.requests}",
        ),
        available_blocks=Signal(
            "job_instance:glasspool_blocks_available:ratio",
            f"sum {_BY} ({series('blocks', state=FREE_OR_CACHED)})\n"
            f"/\nsum {_BY} ({series('blocks_capacity')})",
            "share of the pool that can be handed out",
        ),
        blocked_requests=Signal(
            "job_instance:glasspool_requests_blocked:sum",
            f"sum {_BY} ({series('requests', state=BLOCKED)})",
            "requests that wait or are preempted",
        ),
        steps=Signal(
            f"job_instance:glasspool_steps:rate{windows.steps}",
            f"sum {_BY} (rate({series('steps_total')}[{windows.steps}]))",
            f"steps a second over {windows.steps}",
        ),
        unfinished_requests=Signal(
            "job_instance:glasspool_requests_unfinished:sum",
            f"sum {_BY} ({series('requests')})",
            "unfinished requests",
        ),
        dropped_records=_dropped(windows.stream),
    )


def _waste(window: str) -> Signal:
    recomputed = series("computed_tokens_total", work="recompute")
    computed = series("computed_tokens_total")
    return Signal(
        f"job_instance:glasspool_recompute_tax:ratio{window}",
        f"sum {_BY} (increase({recomputed}[{window}]))\n"
        f"/\nclamp_min(sum {_BY} (increase({computed}[{window}])), 1)",
        f"recomputed / computed tokens over {window}",
    )


def _preemptions(window: str) -> Signal:
    return Signal(
        f"job_instance:glasspool_preemptions:increase{window}",
        f"sum {_BY} (increase({series('preemptions_total')}[{window}]))",
        f"preemptions in {window}",
    )


def _request_preemptions(window: str) -> Signal:
    buckets = f"increase({series('request_preemptions_bucket')}[{window}])"
    finished = f"increase({series('request_preemptions_count')}[{window}])"
    return Signal(
        f"job_instance:glasspool_request_preemptions:p99_{window}",
        f"histogram_quantile(0.99, sum by (job, instance, le) ({buckets})) >= 0\n"
        # The quantile of nothing is NaN, which the comparison drops.
        f"or\n0 * sum {_BY} ({finished})",
        f"99th percentile of a finished request's preemptions over {window}",
    )


def _dropped(window: str) -> Signal:
    dropped = f"sum {_BY} (increase({series('stream_records_dropped_total')}[{window}]))"
    sent = f"sum {_BY} (increase({series('stream_records_sent_total')}[{window}]))"
    return Signal(
        f"job_instance:glasspool_stream_records_dropped:ratio{window}",
        f"{dropped}\n/\nclamp_min({sent} + {dropped}, 1)",
        f"dropped / (sent + dropped) records over {window}",
    )
