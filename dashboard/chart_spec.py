"""What all charts of the pages share: names for the theme's colours, and a spec Streamlit takes."""

from typing import Any

import altair as alt
import streamlit as st

STATES = ("free", "used", "cached", "shared", "copied", "preempted")
"""What the theme's categorical colours stand for, in their order (see .streamlit/config.toml)."""


def palette(meaning: dict[str, str]) -> alt.Scale:
    """A colour scale: `meaning` gives for each value the state whose colour it takes.

    The theme colours a scale's domain in its order, light and dark: so the domain names all six, and
    those without a meaning here are blanks of different lengths that no row has.
    """
    of_state = {state: value for value, state in meaning.items()}
    return alt.Scale(domain=[of_state.get(state, " " * (i + 1)) for i, state in enumerate(STATES)])


def coloured(
    field: str, meaning: dict[str, str], *, legend: bool = True, columns: int | None = None
) -> alt.Color:
    """A colour channel by `palette`, with a legend above the chart: of one row, or of `columns`.

    A narrow chart cuts a row off that is wider than itself.
    """
    shown = alt.Legend(
        title=None,
        orient="top",
        symbolType="square",
        symbolOpacity=1,
        symbolStrokeWidth=1,
        offset=4,
        padding=0,
        columns=columns or len(meaning),
        values=list(meaning),
    )
    return alt.Color(f"{field}:N", scale=palette(meaning), legend=shown if legend else None)


def panel_x(title: str, scale: alt.Scale, *, last: bool) -> alt.X:
    """The x axis of one of the panels that stand over each other: only the last is labelled."""
    axis = alt.Axis(grid=False, labels=last, ticks=last)
    return alt.X("x:Q", title=title if last else None, scale=scale, axis=axis)


def ink() -> str:
    """The colour of text in the browser's theme, which lines and numbers in a chart do not take."""
    dark = st.context.theme.type == "dark"
    return st.get_option(f"theme.{'dark' if dark else 'light'}.textColor") or "#808080"


def as_spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The chart as a dict, drawn on a canvas, without the data that Streamlit puts in.

    A height is that of the plot alone: titles and legends come on top.
    """
    usermeta = {"embedOptions": {"renderer": "canvas"}}
    spec = chart.properties(usermeta=usermeta).configure_view(strokeWidth=0).to_dict()
    del spec["$schema"]
    _without_data(spec)
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec


def _without_data(spec: dict[str, Any]) -> None:
    spec.pop("data", None)
    for part in (*spec.get("vconcat", ()), *spec.get("layer", ())):
        _without_data(part)


def rows_high(rows: int, most: int) -> int | str:
    """The height of a table: as many rows as it has, `most` at most, then it scrolls."""
    return "content" if rows <= most else 36 + 31 * most
