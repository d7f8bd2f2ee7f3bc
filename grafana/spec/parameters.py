"""Every number of the monitoring, once: windows, limits, how long an alert waits and is kept.

Durations are in Prometheus' notation (`30s`, `5m`, `6h`). A test that can't wait for half an hour
builds the same rules from shorter ones.
"""

from dataclasses import dataclass, field

JOB = "glasspool"
"""The `job` label of the engines, in every file."""


@dataclass(frozen=True)
class Windows:
    """Over what time each signal is taken. An alert on waste looks at a short and a long one: the
    long one keeps a burst from paging, the short one lets the alert end soon after the cause.
    """

    page_short: str = "5m"
    page_long: str = "30m"
    budget: str = "6h"
    requests: str = "15m"
    steps: str = "1m"
    stream: str = "10m"


@dataclass(frozen=True)
class Limits:
    """Where an alert begins. Shares are of 1; the counts keep a few events from being a share."""

    page_waste: float = 0.10
    page_preemptions: int = 10
    ticket_waste: float = 0.02
    ticket_preemptions: int = 20
    request_preemptions: int = 3
    finished_requests: int = 20
    available_blocks: float = 0.05
    steps_per_second: float = 0.01
    dropped_records: float = 0.01


@dataclass(frozen=True)
class Timing:
    """`hold`: the condition must be true for so long. `keep`: the alert goes on for so long after."""

    hold: str
    keep: str | None = None


def _timings() -> dict[str, Timing]:
    return {
        "PreemptionThrash": Timing("1m", "5m"),
        "PreemptionBudgetBurn": Timing("15m", "30m"),
        "RequestThrashing": Timing("10m", "15m"),
        "PoolExhausted": Timing("5m", "5m"),
        "EngineStalled": Timing("1m", "2m"),
        "EventStreamLossy": Timing("10m", "10m"),
        "EngineDown": Timing("1m"),
    }


@dataclass(frozen=True)
class Delivery:
    """How Alertmanager groups what it sends."""

    group_wait: str = "10s"
    group_interval: str = "1m"
    repeat_page: str = "1h"
    repeat_ticket: str = "12h"


@dataclass(frozen=True)
class Parameters:
    """All of it. `runbooks` is the address of the runbooks' folder; every alert links into it.

    `grafana_interval` must be a multiple of 10 s, the tick of Grafana's scheduler.
    """

    windows: Windows = field(default_factory=Windows)
    limits: Limits = field(default_factory=Limits)
    timings: dict[str, Timing] = field(default_factory=_timings)
    delivery: Delivery = field(default_factory=Delivery)
    scrape_interval: str = "15s"
    evaluation_interval: str = "15s"
    grafana_interval: str = "30s"
    runbooks: str = "docs/runbooks"
