"""The alerts: they page for wasted work, not for a preemption.

An alert is a list of comparisons that must hold together; Prometheus' rule, Grafana's rule and the
head of the runbook are written from it.
"""

from dataclasses import dataclass
from enum import StrEnum

from grafana.spec.parameters import JOB, Parameters, Timing
from grafana.spec.signals import Signal, signals


class Severity(StrEnum):
    PAGE = "page"
    TICKET = "ticket"


class Form(StrEnum):
    """How a value is written in a text; the functions are in both template languages."""

    PERCENT = "humanizePercentage"
    NUMBER = 'printf "%.2g"'
    COUNT = 'printf "%.0f"'


@dataclass(frozen=True)
class Leg:
    """`signal operator limit`, for one engine."""

    signal: Signal
    operator: str
    limit: float
    form: Form

    @property
    def condition(self) -> str:
        return f"{self.signal.record} {self.operator} {self.limit:g}"

    @property
    def words(self) -> str:
        limit = f"{self.limit * 100:g} %" if self.form is Form.PERCENT else f"{self.limit:g}"
        return f"{self.signal.meaning} {self.operator} {limit}"


@dataclass(frozen=True)
class Alert:
    """`description` has `{0}`, `{1}`, … where the legs' values stand, `{instance}` for the engine.

    `panel` is the dashboard's uid and the panel's id that show the first signal. `absent` also fires
    where no series exists at all.
    """

    name: str
    legs: tuple[Leg, ...]
    timing: Timing
    severity: Severity
    summary: str
    description: str
    panel: tuple[str, int]
    absent: bool = False

    @property
    def condition(self) -> str:
        """In PromQL."""
        condition = "\nand ".join(leg.condition for leg in self.legs)
        if self.absent:
            condition += f"\nor absent({self.legs[0].signal.record})"
        return condition


UP = Signal(f'up{{job="{JOB}"}}', "", "the last scrape succeeded (1) or failed (0)")


def alerts(parameters: Parameters) -> list[Alert]:
    """All alerts, those that page about wasted work first."""
    found, limits, timings = signals(parameters), parameters.limits, parameters.timings
    windows = parameters.windows
    percent, number, count = Form.PERCENT, Form.NUMBER, Form.COUNT
    return [
        Alert(
            "PreemptionThrash",
            (
                Leg(found.waste_short, ">", limits.page_waste, percent),
                Leg(found.waste_long, ">", limits.page_waste, percent),
                Leg(found.preemptions_long, ">", limits.page_preemptions, count),
            ),
            timings["PreemptionThrash"],
            Severity.PAGE,
            "{instance} computes tokens again and again: its pool is too small for the load",
            f"{{0}} of the tokens computed in the last {windows.page_short} had been computed before "
            f"({{1}} over {windows.page_long}), after {{2}} preemptions in {windows.page_long}.",
            ("glasspool-preemption", 1),
        ),
        Alert(
            "PreemptionBudgetBurn",
            (
                Leg(found.waste_long, ">", limits.ticket_waste, percent),
                Leg(found.waste_budget, ">", limits.ticket_waste, percent),
                Leg(found.preemptions_budget, ">", limits.ticket_preemptions, count),
            ),
            timings["PreemptionBudgetBurn"],
            Severity.TICKET,
            "{instance} wastes work on preemptions, little but for hours",
            f"{{0}} of the tokens computed in the last {windows.page_long} had been computed before "
            f"({{1}} over {windows.budget}), after {{2}} preemptions in {windows.budget}.",
            ("glasspool-preemption", 1),
        ),
        Alert(
            "RequestThrashing",
            (
                Leg(found.request_preemptions, ">", limits.request_preemptions, number),
                Leg(found.finished_requests, ">", limits.finished_requests, count),
            ),
            timings["RequestThrashing"],
            Severity.TICKET,
            "Requests on {instance} are preempted over and over",
            f"One request in a hundred was preempted {{0}} times or more, of {{1}} that finished in "
            f"{windows.requests}.",
            ("glasspool-preemption", 5),
        ),
        Alert(
            "PoolExhausted",
            (
                Leg(found.available_blocks, "<", limits.available_blocks, percent),
                Leg(found.blocked_requests, ">", 0, count),
            ),
            timings["PoolExhausted"],
            Severity.TICKET,
            "{instance} has no blocks left, and requests wait",
            "{0} of the pool can be handed out, while {1} requests wait or are preempted.",
            ("glasspool-kv-cache", 3),
        ),
        Alert(
            "EngineStalled",
            (
                Leg(found.steps, "<", limits.steps_per_second, number),
                Leg(found.unfinished_requests, ">", 0, count),
            ),
            timings["EngineStalled"],
            Severity.PAGE,
            "{instance} has work and makes no steps",
            f"{{0}} steps a second over {windows.steps}, with {{1}} unfinished requests.",
            ("glasspool-engine", 1),
        ),
        Alert(
            "EventStreamLossy",
            (Leg(found.dropped_records, ">", limits.dropped_records, percent),),
            timings["EventStreamLossy"],
            Severity.TICKET,
            "Viewers of {instance} miss events",
            f"{{0}} of the event records of the last {windows.stream} were left out for slow viewers "
            "or a full recorder.",
            ("glasspool-engine", 12),
        ),
        Alert(
            "EngineDown",
            (Leg(UP, "==", 0, number),),
            timings["EngineDown"],
            Severity.PAGE,
            "No metrics from {instance}",
            "Prometheus gets no metrics from this engine, or knows of no engine at all.",
            ("glasspool-overview", 1),
            absent=True,
        ),
    ]
