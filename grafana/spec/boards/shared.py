"""Panels and queries that more than one dashboard shows."""

from grafana.spec.colours import BAD, CACHED, FREE, PREEMPTED, SHARED, USED, WATCH
from grafana.spec.metrics import chosen, rate
from grafana.spec.panels import TOKENS_A_SECOND, Chart, Mark, Query, recorded
from grafana.spec.parameters import Limits, Parameters
from grafana.spec.signals import signals

ENGINE = "glasspool-engine"
KV_CACHE = "glasspool-kv-cache"
OVERVIEW = "glasspool-overview"
PREEMPTION = "glasspool-preemption"

FIRING = 'ALERTS{alertstate="firing", job=~"$job", instance=~"($instance)|"}'
"""An alert that no engine answers at all has no instance."""


def waste_marks(limits: Limits) -> tuple[Mark, ...]:
    """Where a ticket is made, and where somebody is paged."""
    return Mark(limits.ticket_waste, WATCH), Mark(limits.page_waste, BAD)


def composition() -> tuple[Query, ...]:
    """The pool in layers that sum to its size."""
    active, shared = chosen("blocks", state="active"), chosen("blocks_shared")
    return (
        Query(f"sum({active}) - sum({shared})", "used by one", USED),
        Query(f"sum({shared})", "shared", SHARED),
        Query(f"sum({chosen('blocks', state='cached')})", "cached", CACHED),
        Query(f"sum({chosen('blocks', state='free')})", "free", FREE),
    )


def waste(parameters: Parameters) -> tuple[Query, ...]:
    found, windows = signals(parameters), parameters.windows
    return (
        Query(f"max({recorded(found.waste_short)})", windows.page_short, PREEMPTED),
        Query(f"max({recorded(found.waste_long)})", windows.page_long, SHARED),
        Query(f"max({recorded(found.waste_budget)})", windows.budget, USED),
    )


def requests(panel: int, width: int, see: str | None = None) -> Chart:
    states = (("running", USED), ("waiting", SHARED), ("preempted", PREEMPTED))
    return Chart(
        id=panel,
        title="Unfinished requests",
        description=(
            "What the engines have to do. Waiting without preempted ones is load; preempted ones "
            "mean that the pool does not hold what was started."
        ),
        unit="short",
        queries=tuple(
            Query(f"sum({chosen('requests', state=state)})", state, colour)
            for state, colour in states
        ),
        width=width,
        stacked=True,
        see=see,
    )


def tokens(panel: int, width: int, see: str | None = None) -> Chart:
    kinds = (("decode", USED), ("prefill", CACHED), ("recompute", PREEMPTED))
    return Chart(
        id=panel,
        title="Computed tokens by kind",
        description=(
            "Tokens run through the model. The red layer had been computed before and was lost to a "
            "preemption: it is paid for and helps nobody."
        ),
        unit=TOKENS_A_SECOND,
        queries=tuple(
            Query(f"sum({rate('computed_tokens_total', work=kind)})", kind, colour)
            for kind, colour in kinds
        ),
        width=width,
        stacked=True,
        see=see,
    )
