"""Engine and event stream: is it stepping, how fast, and do its viewers see everything?"""

from grafana.spec.boards.shared import ENGINE
from grafana.spec.colours import CACHED, PREEMPTED, SHARED, USED, WATCH
from grafana.spec.metrics import chosen, rate
from grafana.spec.panels import (
    A_SECOND,
    COUNT,
    SECONDS,
    SHARE,
    Chart,
    Dashboard,
    Figure,
    Heat,
    Mark,
    Panel,
    Query,
    Section,
    buckets,
    quantiles,
    recorded,
)
from grafana.spec.parameters import Parameters
from grafana.spec.signals import signals


def engine(parameters: Parameters) -> Dashboard:
    return Dashboard(
        ENGINE,
        "Glasspool / Engine and event stream",
        "Is it stepping, how fast, and do its viewers see everything?",
        (
            Section("Steps", _steps()),
            Section("Latencies", _latencies()),
            Section("Event stream", _stream(parameters)),
            Section("What runs", _what_runs()),
        ),
    )


def _steps() -> tuple[Panel, ...]:
    return (
        Chart(
            id=1,
            title="Steps",
            description="A step schedules, copies, runs the model and samples. None is right at idle.",
            unit=A_SECOND,
            queries=(Query(f"sum({rate('steps_total')})", "steps", USED),),
            width=8,
        ),
        Heat(
            id=2,
            title="Step duration",
            description="Long steps with short ones between are prefills among decodes.",
            unit=SECONDS,
            queries=buckets("step_duration_seconds"),
            width=8,
        ),
        Chart(
            id=3,
            title="Since the newest record",
            description=(
                "Seconds since the step of the newest event record, on the engine where it is "
                "longest. It grows at idle; with unfinished requests, it is a stall."
            ),
            unit=SECONDS,
            queries=(
                Query(f"max(time() - {chosen('last_step_timestamp_seconds')})", "since then", USED),
            ),
            width=8,
        ),
    )


def _latencies() -> tuple[Panel, ...]:
    return (
        Heat(
            id=4,
            title="Time to first token",
            description="From a request's arrival to its first token.",
            unit=SECONDS,
            queries=buckets("time_to_first_token_seconds"),
            width=12,
        ),
        Heat(
            id=5,
            title="Inter-token latency",
            description="Between two tokens of a sequence. A second band far above: preemptions.",
            unit=SECONDS,
            queries=buckets("inter_token_latency_seconds"),
            width=12,
        ),
        Chart(
            id=6,
            title="Time in the queue",
            description="From a request's arrival to the step that first runs it.",
            unit=SECONDS,
            queries=quantiles("queue_duration_seconds"),
            width=12,
        ),
        Chart(
            id=7,
            title="Request duration",
            description="From a request's arrival to its end; aborted ones are left out.",
            unit=SECONDS,
            queries=quantiles("request_duration_seconds"),
            width=12,
        ),
    )


def _stream(parameters: Parameters) -> tuple[Panel, ...]:
    return (
        Chart(
            id=8,
            title="Viewers",
            description="Clients of the event stream, dashboards among them.",
            unit=COUNT,
            queries=(Query(f"sum({chosen('stream_clients')})", "viewers", USED),),
            width=8,
        ),
        Chart(
            id=9,
            title="Longest queue of a viewer",
            description="Records that the slowest viewer has yet to be sent.",
            unit=COUNT,
            queries=(Query(f"max({chosen('stream_queue_records')})", "records", USED),),
            width=8,
        ),
        Chart(
            id=10,
            title="Records sent",
            description="To all viewers together.",
            unit=A_SECOND,
            queries=(Query(f"sum({rate('stream_records_sent_total')})", "sent", USED),),
            width=8,
        ),
        Chart(
            id=11,
            title="Age of a record when sent",
            description="How far behind the engine its viewers are.",
            unit=SECONDS,
            queries=quantiles("stream_lag_seconds"),
            width=8,
        ),
        Chart(
            id=12,
            title="Records left out",
            description=(
                f"Dropped of dropped and sent records over {parameters.windows.stream}, on the "
                "engine where it is worst. Viewers are told of each gap."
            ),
            unit=SHARE,
            queries=(
                Query(
                    f"max({recorded(signals(parameters).dropped_records)})", "dropped", PREEMPTED
                ),
            ),
            width=8,
            marks=(Mark(parameters.limits.dropped_records, WATCH),),
        ),
        Chart(
            id=13,
            title="Drops and resyncs",
            description=(
                "Records left out, by reason; a resync is the keyframe from which a viewer goes on."
            ),
            unit=A_SECOND,
            queries=(
                Query(
                    f"sum by (reason) ({rate('stream_records_dropped_total')})",
                    "dropped: {{reason}}",
                ),
                Query(f"sum({rate('stream_resyncs_total')})", "resyncs", SHARED),
            ),
            width=8,
        ),
    )


def _what_runs() -> tuple[Panel, ...]:
    return (
        Figure(
            id=14,
            title="Version, model and policy",
            description="Of each engine.",
            unit=COUNT,
            queries=(
                Query(
                    chosen("build_info"), "{{instance}}: {{model}}, {{version}}, {{policy}}", CACHED
                ),
            ),
            width=24,
            height=5,
            names=True,
        ),
    )
