"""What a panel says, without how Grafana writes it down: `grafana.dashboard_files` does that."""

from dataclasses import dataclass, field

from grafana.spec.colours import BAD, FINE, WATCH
from grafana.spec.metrics import CHOSEN, rate
from grafana.spec.signals import Signal


@dataclass(frozen=True)
class Query:
    """A line, a layer or a figure; `legend` is its name, `colour` the same wherever it appears."""

    expr: str
    legend: str
    colour: str | None = None


@dataclass(frozen=True)
class Mark:
    """From `value` on, the panel is in this colour, or has a line there."""

    value: float
    colour: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """`id` is never used again for another panel: alerts and links name it. 24 columns are a line.

    `base` is the colour below the first mark. `see` is the dashboard that tells more.
    """

    id: int
    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    width: int
    height: int = 8
    minimum: float | None = 0
    maximum: float | None = None
    base: str = FINE
    marks: tuple[Mark, ...] = ()
    see: str | None = None


@dataclass(frozen=True, kw_only=True)
class Chart(Panel):
    """Lines over time; `stacked`: layers that sum up, `shares`: layers as parts of 100 %."""

    stacked: bool = False
    shares: bool = False


@dataclass(frozen=True, kw_only=True)
class Figure(Panel):
    """The newest value, large. `names`: what is shown is the legend. `empty`: shown without any."""

    height: int = 4
    names: bool = False
    empty: str = "–"


@dataclass(frozen=True, kw_only=True)
class Heat(Panel):
    """A row for each bucket of a histogram, or for each series; how much is the colour.

    `unit` belongs to the rows of buckets, `cell_unit` to what is counted.
    """

    buckets: bool = True
    cell_unit: str = "suffix:/s"


@dataclass(frozen=True)
class Section:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """`uid` is its file's name and what links name."""

    uid: str
    title: str
    description: str
    sections: tuple[Section, ...] = field(default=())


TOKENS_A_SECOND = "si:tok/s"
A_SECOND = "suffix:/s"
SHARE = "percentunit"
SECONDS = "s"
COUNT = "short"

_QUANTILES = ((0.5, FINE), (0.95, WATCH), (0.99, BAD))


def recorded(signal: Signal) -> str:
    """A recorded signal of the chosen engines."""
    return f"{signal.record}{{{CHOSEN}}}"


def quantile(metric: str, share: float) -> str:
    return f"histogram_quantile({share}, sum by (le) ({rate(f'{metric}_bucket')}))"


def quantiles(metric: str) -> tuple[Query, ...]:
    """Median, 95th and 99th percentile of a histogram over the chosen engines."""
    return tuple(
        Query(quantile(metric, share), f"p{share * 100:g}", colour) for share, colour in _QUANTILES
    )


def buckets(metric: str) -> tuple[Query, ...]:
    """How many values a second fell into each bucket of a histogram."""
    return (Query(f"sum by (le) ({rate(f'{metric}_bucket')})", "{{le}}"),)
