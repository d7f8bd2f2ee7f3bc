"""What all charts of the pages share: names for the theme's colours, and a spec Streamlit takes."""

from typing import Any

import altair as alt

STATES = ("free", "used", "cached", "shared", "copied", "preempted")
"""What the theme's categorical colours stand for, in their order (see .streamlit/config.toml)."""


def coloured(
    field: str,
    meaning: dict[str, str],
    *,
    legend: bool = True,
    columns: int = 6,
    order: list[str] | None = None,
) -> alt.Color:
    """A colour channel: `meaning` gives for each value of `field` the state whose colour it takes.

    The theme colours a scale's domain in its order, light and dark: so the domain names all six, and
    those without a meaning here are blanks of different lengths that no row has.
    """
    of_state = {state: value for value, state in meaning.items()}
    domain = [of_state.get(state, " " * (i + 1)) for i, state in enumerate(STATES)]
    shown = (
        alt.Legend(
            title=None,
            orient="top",
            symbolType="square",
            symbolStrokeWidth=1,
            columns=columns,
            values=order or list(meaning),
            labelLimit=300,
        )
        if legend
        else None
    )
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=domain), legend=shown)


def as_spec(chart: alt.TopLevelMixin, autosize: str | None = None) -> dict[str, Any]:
    """The chart as a dict, drawn on a canvas, without the data that Streamlit puts in."""
    usermeta = {"embedOptions": {"renderer": "canvas"}}
    spec = chart.properties(usermeta=usermeta).configure_view(strokeWidth=0).to_dict()
    del spec["$schema"]
    spec.pop("data", None)
    if autosize is not None:
        spec["autosize"] = {"type": autosize, "contains": "padding"}
    return spec
