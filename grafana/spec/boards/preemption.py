"""Preemption: how much work is lost, to what, and who pays for it."""

from grafana.spec.boards.shared import (
    KV_CACHE,
    PREEMPTION,
    requests,
    tokens,
    waste,
    waste_marks,
)
from grafana.spec.colours import CACHED, PREEMPTED, USED, WATCH
from grafana.spec.metrics import chosen, rate
from grafana.spec.panels import (
    A_SECOND,
    COUNT,
    SHARE,
    Chart,
    Dashboard,
    Heat,
    Mark,
    Panel,
    Query,
    Section,
    buckets,
    recorded,
)
from grafana.spec.parameters import Parameters
from grafana.spec.signals import FREE_OR_CACHED, signals


def preemption(parameters: Parameters) -> Dashboard:
    return Dashboard(
        PREEMPTION,
        "Glasspool / Preemption",
        "How much work is lost, to what, and who pays for it.",
        (
            Section("Lost work", _work(parameters)),
            Section("Requests", _requests(parameters)),
        ),
    )


def _work(parameters: Parameters) -> tuple[Panel, ...]:
    return (
        Chart(
            id=1,
            title="Recompute tax",
            description=(
                "Share of the computed tokens that had been computed before, on the engine that "
                "wastes most, over three windows. The lines are where a ticket is made and where "
                "somebody is paged; both also ask for a number of preemptions."
            ),
            unit=SHARE,
            queries=waste(parameters),
            width=16,
            height=9,
            marks=waste_marks(parameters.limits),
        ),
        Chart(
            id=2,
            title="Preemptions by cause",
            description=(
                "Running sequences that lost their blocks. A single one is harmless: what counts "
                "is the work that is lost, beside this."
            ),
            unit=A_SECOND,
            queries=(
                Query(f"sum by (reason) ({rate('preemptions_total')})", "{{reason}}", PREEMPTED),
            ),
            width=8,
            height=9,
            see=KV_CACHE,
        ),
        tokens(3, 12),
        Chart(
            id=4,
            title="Sequences started and resumed",
            description=(
                "Moves to running. As many resumed as new ones: everybody is preempted about once."
            ),
            unit=A_SECOND,
            queries=(
                Query(f"sum({rate('requests_scheduled_total', kind='new')})", "new", USED),
                Query(
                    f"sum({rate('requests_scheduled_total', kind='resumed')})",
                    "resumed",
                    PREEMPTED,
                ),
            ),
            width=12,
        ),
    )


def _requests(parameters: Parameters) -> tuple[Panel, ...]:
    found = signals(parameters)
    return (
        Chart(
            id=5,
            title="Preemptions of a request, p99",
            description=(
                f"Of requests that finished in {parameters.windows.requests}, on the engine where "
                "it is worst. Above the line the same requests lose their blocks over and over."
            ),
            unit=COUNT,
            queries=(Query(f"max({recorded(found.request_preemptions)})", "p99", PREEMPTED),),
            width=12,
            marks=(Mark(parameters.limits.request_preemptions, WATCH),),
        ),
        Heat(
            id=6,
            title="Preemptions of finished requests",
            description="How many requests were preempted so many times; 0 is the lowest row.",
            unit=COUNT,
            queries=buckets("request_preemptions"),
            width=12,
        ),
        requests(7, 12),
        Chart(
            id=8,
            title="Blocked requests and room",
            description=(
                "Requests that wait or are preempted, against the blocks that can be handed out. "
                "Blocked requests beside free blocks: the limit is max_num_seqs, not memory."
            ),
            unit=COUNT,
            queries=(
                Query(f"sum({chosen('requests', state='preempted')})", "preempted", PREEMPTED),
                Query(f"sum({chosen('requests', state='waiting')})", "waiting", WATCH),
                Query(f"sum({chosen('blocks', state=FREE_OR_CACHED)})", "blocks with room", CACHED),
            ),
            width=12,
            see=KV_CACHE,
        ),
    )
