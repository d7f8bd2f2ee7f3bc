"""Overview: is something wrong, is it memory, and do clients feel it?"""

from grafana.spec.boards.shared import (
    ENGINE,
    FIRING,
    KV_CACHE,
    OVERVIEW,
    PREEMPTION,
    composition,
    requests,
    tokens,
    waste,
    waste_marks,
)
from grafana.spec.colours import BAD, CACHED, FINE, PREEMPTED, SHARED, USED, WATCH
from grafana.spec.metrics import CHOSEN, chosen, rate
from grafana.spec.panels import (
    A_SECOND,
    COUNT,
    SECONDS,
    SHARE,
    Chart,
    Dashboard,
    Figure,
    Mark,
    Query,
    Section,
    quantile,
    quantiles,
    recorded,
)
from grafana.spec.parameters import Parameters
from grafana.spec.signals import BLOCKED, signals


def overview(parameters: Parameters) -> Dashboard:
    return Dashboard(
        OVERVIEW,
        "Glasspool / Overview",
        "Is something wrong, is it memory, and do clients feel it?",
        (
            Section("Now", _now(parameters)),
            Section("Memory and work", _memory(parameters)),
            Section("What clients see", _clients()),
        ),
    )


def _now(parameters: Parameters) -> tuple[Figure, ...]:
    active, capacity = chosen("blocks", state="active"), chosen("blocks_capacity")
    return (
        Figure(
            id=1,
            title="Engines that answer",
            description="Share of the chosen engines whose last scrape succeeded.",
            unit=SHARE,
            queries=(Query(f"avg(up{{{CHOSEN}}})", "answering"),),
            width=4,
            base=BAD,
            marks=(Mark(1, FINE),),
            see=ENGINE,
        ),
        Figure(
            id=2,
            title="Alerts that fire",
            description="By name. Each has a runbook, which its notification links.",
            unit=COUNT,
            queries=(Query(f"sum by (alertname) ({FIRING})", "{{alertname}}"),),
            width=4,
            marks=(Mark(1, BAD),),
            names=True,
            empty="none",
        ),
        Figure(
            id=3,
            title="Wasted work",
            description=(
                f"Recomputed of all computed tokens over {parameters.windows.page_short}, on the "
                "engine that wastes most."
            ),
            unit=SHARE,
            queries=(Query(f"max({recorded(signals(parameters).waste_short)})", "wasted"),),
            width=4,
            marks=waste_marks(parameters.limits),
            see=PREEMPTION,
        ),
        Figure(
            id=4,
            title="Pool in use",
            description=(
                "Active blocks of all. Full is fine as long as nobody waits: cached blocks are "
                "not counted, they are handed out when needed."
            ),
            unit=SHARE,
            queries=(Query(f"sum({active}) / sum({capacity})", "active"),),
            width=4,
            maximum=1,
            marks=(Mark(1 - parameters.limits.available_blocks, WATCH),),
            see=KV_CACHE,
        ),
        Figure(
            id=5,
            title="Requests that don't run",
            description="Waiting for their first step, or preempted.",
            unit=COUNT,
            queries=(Query(f"sum({chosen('requests', state=BLOCKED)})", "blocked"),),
            width=4,
            marks=(Mark(1, WATCH),),
            see=PREEMPTION,
        ),
        Figure(
            id=6,
            title="Time to first token, p95",
            description="Of the requests whose first token came in the last interval.",
            unit=SECONDS,
            queries=(Query(quantile("time_to_first_token_seconds", 0.95), "p95"),),
            width=4,
            see=ENGINE,
        ),
    )


def _memory(parameters: Parameters) -> tuple[Chart, ...]:
    return (
        Chart(
            id=7,
            title="Pool composition",
            description=(
                "Blocks by state, summing to the size of the pool. Cached blocks hold the "
                "beginnings of earlier prompts and are given up when somebody needs room."
            ),
            unit=COUNT,
            queries=composition(),
            width=12,
            stacked=True,
            see=KV_CACHE,
        ),
        requests(8, 12, PREEMPTION),
        Chart(
            id=9,
            title="Recompute tax",
            description=(
                "Share of the computed tokens that had been computed before, on the engine that "
                "wastes most, over three windows. The lines are where a ticket is made and where "
                "somebody is paged."
            ),
            unit=SHARE,
            queries=waste(parameters),
            width=12,
            marks=waste_marks(parameters.limits),
            see=PREEMPTION,
        ),
        tokens(10, 12, PREEMPTION),
    )


def _clients() -> tuple[Chart, ...]:
    reasons = (("stop", USED), ("length", CACHED), ("abort", SHARED), ("rejected", PREEMPTED))
    return (
        Chart(
            id=11,
            title="Time to first token",
            description="From a request's arrival to its first token.",
            unit=SECONDS,
            queries=quantiles("time_to_first_token_seconds"),
            width=8,
            see=ENGINE,
        ),
        Chart(
            id=12,
            title="Inter-token latency",
            description=(
                "Between two tokens of a sequence. A preemption between them counts: it is what "
                "the reader of a streamed answer waits."
            ),
            unit=SECONDS,
            queries=quantiles("inter_token_latency_seconds"),
            width=8,
            see=ENGINE,
        ),
        Chart(
            id=13,
            title="Finished requests by reason",
            description=(
                "stop and length are answers; abort: the client left; rejected: it could never "
                "fit, or the queue was full."
            ),
            unit=A_SECOND,
            queries=tuple(
                Query(f"sum({rate('requests_finished_total', reason=why)})", why, colour)
                for why, colour in reasons
            ),
            width=8,
            stacked=True,
            see=ENGINE,
        ),
    )
