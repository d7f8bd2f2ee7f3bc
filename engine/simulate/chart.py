"""The outcomes of several runs as a picture."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from engine.simulate.runs import RECORDED, Outcome

_FIGURES = (
    ("utilisation_mean", "active blocks / pool, mean"),
    ("preemptions", "preemptions"),
    ("recompute_share", "recomputed / computed tokens"),
    ("prefix_hit_rate", "prefix hits / tokens looked up"),
    ("output_tokens_per_second", "output tokens a second"),
    ("first_token_seconds.p95", "first token, p95, seconds"),
    ("inter_token_seconds.p95", "between tokens, p95, seconds"),
    ("refused", "refused requests"),
)
COLUMNS = 4


def outcomes_chart(outcomes: Sequence[Outcome], title: str) -> alt.VConcatChart:
    """A panel a figure, a bar a run, in the order in which they ran."""
    names = [outcome.name for outcome in outcomes]
    panels = [_panel(outcomes, names, path, shown) for path, shown in _FIGURES]
    lines = [
        alt.hconcat(*panels[start : start + COLUMNS]) for start in range(0, len(panels), COLUMNS)
    ]
    return alt.vconcat(*lines, title=title).configure_axis(labelLimit=400)


def _panel(
    outcomes: Sequence[Outcome], names: list[str], path: str, title: str
) -> alt.Chart | alt.LayerChart:
    points = [{"run": outcome.name, "value": _at(outcome.figures, path)} for outcome in outcomes]
    leftmost = [path for path, _ in _FIGURES].index(path) % COLUMNS == 0
    axis = alt.Axis(title=None) if leftmost else None
    return (
        alt.Chart(alt.Data(values=points), title=title)
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=None, axis=alt.Axis(tickCount=4)),
            y=alt.Y("run:N", sort=names, axis=axis),
            color=alt.when(alt.datum.run == RECORDED)
            .then(alt.value("#FFB902"))
            .otherwise(alt.value("#0858C7")),
        )
        .properties(width=180, height=max(40, 18 * len(names)))
    )


def _at(value: Any, path: str) -> float | None:
    for name in path.split("."):
        value = getattr(value, name) if value is not None else None
    return value
