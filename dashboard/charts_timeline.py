"""The timeline: a strip to brush over four charts of the same stretch, as one Vega-Lite spec.

    strip        ░░▒▒▓▓[▓▓▒▒]░░      all that is known; brushing it zooms the four below
    composition  blocks by state
    queues       sequences by status
    events       a row for each kind, each on its own scale
    durations    milliseconds a step

Every bucket has an invisible column over the whole height that takes the clicks and the tooltip.
"""

from collections.abc import Callable
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.chart_spec import as_spec, coloured, panel_x
from dashboard.history import EVENTS
from dashboard.timeline_rows import Axis

RANGE = "range"
PICKED = "picked"
_STATES = ("used", "shared", "cached", "free")
_BLOCKS = {"used": "used", "shared": "shared", "cached": "cached", "free": "free"}
_QUEUES = {"running": "used", "waiting": "cached", "preempted": "preempted"}
_TIMES = {"model": "used", "sample": "cached", "schedule": "shared"}
_AXIS = {"minExtent": 62, "maxExtent": 62, "titleX": -52}
_HEIGHTS = {"composition": 170, "queues": 110, "events": 190, "durations": 120}


@st.cache_resource(show_spinner=False, max_entries=16)
def timeline_spec(axis: Axis, num_blocks: int, panels: tuple[str, ...], ink: str) -> dict[str, Any]:
    """Expects the rows that `timeline_data` makes. `panels` are names of _HEIGHTS, in order.

    `ink` is the colour of thin lines.
    """
    draw = {
        "composition": lambda x: _composition(x, num_blocks, ink),
        "queues": _queues,
        "events": _events,
        "durations": lambda x: _durations(x, ink),
    }
    brush = alt.selection_interval(name=RANGE, encodings=["x"])
    picked = alt.selection_point(name=PICKED, fields=["seq"], on="click", empty=False)
    title = "step" if axis is Axis.STEP else "seconds since the engine started its clock"
    tight = alt.Scale(nice=False, zero=False)
    strip = (
        _base("overview")
        .transform_fold(list(_STATES[:3]), as_=["state", "blocks"])
        .transform_calculate(order=f"indexof({list(_STATES)}, datum.state)")
        .transform_stack(stack="blocks", as_=["low", "high"], groupby=["x"], sort=_ORDER)
        .mark_rect(clip=True, cursor="crosshair")
        .encode(
            x=alt.X("x:Q", title=None, scale=tight, axis=alt.Axis(grid=False)),
            x2="x2:Q",
            y=alt.Y(
                "low:Q",
                title="range",
                scale=alt.Scale(domain=[0, num_blocks], nice=False),
                axis=alt.Axis(labels=False, ticks=False, grid=False, **_AXIS),
            ),
            y2="high:Q",
            color=coloured("state", _BLOCKS, legend=False),
            tooltip=_where(axis),
        )
        .add_params(brush)
        .properties(height=44)
    )
    zoomed = alt.Scale(domain=brush, nice=False, zero=False)
    charts = []
    for number, name in enumerate(panels):
        last = number == len(panels) - 1
        x = panel_x(title, zoomed, last=last)
        layers, tooltip = draw[name](x)
        columns = (
            _base("detail")
            .mark_rect(opacity=0.001, cursor="pointer", clip=True)
            .encode(x=x, x2="x2:Q", tooltip=[*_where(axis), *tooltip])
            .properties(name=f"columns_{name}")
        )
        if number == 0:
            columns = columns.add_params(picked)
        line = _base("moment").mark_rule(strokeDash=[4, 3], strokeWidth=1.5, clip=True, color=ink)
        charts.append(
            alt.layer(*layers, line.encode(x=x), columns)
            .resolve_scale(color="shared")
            .properties(height=_HEIGHTS[name])
        )
    chart = alt.vconcat(strip, *charts, spacing=6).resolve_scale(color="independent")
    spec = as_spec(chart)
    for param in spec["params"]:
        if param["name"] == PICKED:
            param["views"] = [part["layer"][-1]["name"] for part in spec["vconcat"][1:]]
    return spec


def timeline_data(
    overview: pd.DataFrame, detail: pd.DataFrame, moment: float | None
) -> pd.DataFrame:
    """One table for the spec: `level` tells the strip's rows, the four charts' and the moment's."""
    parts = [overview.assign(level="overview"), detail.assign(level="detail")]
    if moment is not None:
        parts.append(pd.DataFrame({"level": ["moment"], "x": [moment], "x2": [moment]}))
    return pd.concat(parts, ignore_index=True)


def timeline_chart(
    data: pd.DataFrame, spec: dict[str, Any], key: str, on_click: Callable[[], None]
) -> Any:
    """Draw it; gives Streamlit's selection state with RANGE and PICKED."""
    return st.vega_lite_chart(
        data,
        spec,
        key=key,
        width="stretch",
        on_select=on_click,
        selection_mode=[RANGE, PICKED],
        alt="Over time: blocks by state, sequences by status, events by kind and durations of steps",
    )


def _base(level: str) -> alt.Chart:
    return alt.Chart(alt.NamedData("points")).transform_filter(f"datum.level == '{level}'")


def _where(axis: Axis) -> list[alt.Tooltip]:
    seconds = [] if axis is Axis.STEP else [alt.Tooltip("x:Q", title="from (s)", format=",.3f")]
    return [
        *seconds,
        alt.Tooltip("first_step:Q", title="from step", format=","),
        alt.Tooltip("step:Q", title="to step", format=","),
        alt.Tooltip("records:Q", title="records put together", format=","),
    ]


def _y(field: str, title: str, **options: Any) -> alt.Y:
    axis = alt.Axis(tickCount=4, **_AXIS)
    return alt.Y(field, title=title, axis=axis, **options)


def _stack(x: alt.X, columns: list[str], kind: str, value: str) -> alt.Chart:
    return (
        _base("detail")
        .transform_fold(columns, as_=[kind, value])
        .transform_calculate(order=f"indexof({columns}, datum['{kind}'])")
        .transform_stack(stack=value, as_=["low", "high"], groupby=["x"], sort=_ORDER)
        .mark_rect(clip=True)
        .encode(x=x, x2="x2:Q", y2="high:Q")
    )


_ORDER = [alt.SortField("order")]


def _most(x: alt.X, column: str, ink: str) -> alt.Chart:
    """A thin line at the most that a bucket had: its mean alone would hide a peak."""
    rule = _base("detail").transform_filter("datum.records > 1")
    rule = rule.mark_rule(clip=True, strokeWidth=1.2, color=ink)
    return rule.encode(x=x, x2="x2:Q", y=alt.Y(f"{column}:Q"))


def _composition(x: alt.X, num_blocks: int, ink: str) -> tuple[list[alt.Chart], list[alt.Tooltip]]:
    scale = alt.Scale(domain=[0, num_blocks], nice=False)
    stack = _stack(x, list(_STATES), "state", "blocks").encode(
        y=_y("low:Q", "blocks", scale=scale),
        color=coloured("state", _BLOCKS),
    )
    shown = [
        alt.Tooltip("active:Q", title="active blocks, mean", format=",.1f"),
        alt.Tooltip("active_min:Q", title="active blocks, least", format=","),
        alt.Tooltip("active_max:Q", title="active blocks, most", format=","),
        alt.Tooltip("shared:Q", title="of them shared, mean", format=",.1f"),
        alt.Tooltip("cached:Q", title="cached blocks, mean", format=",.1f"),
        alt.Tooltip("free:Q", title="free blocks, mean", format=",.1f"),
        alt.Tooltip("free_min:Q", title="free blocks, least", format=","),
    ]
    return [stack, _most(x, "active_max", ink)], shown


def _queues(x: alt.X) -> tuple[list[alt.Chart], list[alt.Tooltip]]:
    stack = _stack(x, list(_QUEUES), "status", "sequences").encode(
        y=_y("low:Q", "sequences"), color=coloured("status", _QUEUES)
    )
    shown = [
        tip
        for name in _QUEUES
        for tip in (
            alt.Tooltip(f"{name}:Q", title=f"{name} sequences, mean", format=",.1f"),
            alt.Tooltip(f"{name}_max:Q", title=f"{name} sequences, most", format=","),
        )
    ]
    return [stack], shown


def _events(x: alt.X) -> tuple[list[alt.Chart], list[alt.Tooltip]]:
    kinds = list(EVENTS)
    names = "[" + ", ".join(f"'{kind}'" for kind in reversed(kinds)) + "]"
    axis = alt.Axis(
        values=[row + 0.4 for row in range(len(kinds))],
        labelExpr=f"{names}[floor(datum.value)]",
        ticks=False,
        grid=False,
        minExtent=_AXIS["minExtent"],
        maxExtent=_AXIS["maxExtent"],
        labelFontSize=10,
        labelPadding=3,
    )
    bars = (
        _base("detail")
        .transform_fold(kinds, as_=["kind", "events"])
        .transform_joinaggregate(most="max(events)", groupby=["kind"])
        .transform_calculate(
            low=f"{len(kinds) - 1} - indexof({kinds}, datum.kind)",
            high="datum.low + 0.86 * datum.events / max(1, datum.most)",
            colour="datum.kind == 'preemptions' ? 'preemptions' : datum.kind == 'copies' ? 'copies' "
            ": datum.kind == 'evictions' ? 'evictions' : 'other events'",
        )
        .mark_rect(clip=True)
        .encode(
            x=x,
            x2="x2:Q",
            y=alt.Y(
                "low:Q",
                title=None,
                scale=alt.Scale(domain=[0, len(kinds)], nice=False),
                axis=axis,
            ),
            y2="high:Q",
            color=coloured(
                "colour",
                {
                    "preemptions": "preempted",
                    "copies": "copied",
                    "evictions": "cached",
                    "other events": "used",
                },
                legend=False,
            ),
        )
    )
    shown = [alt.Tooltip(f"{kind}:Q", title=kind, format=",") for kind in kinds]
    return [bars], shown


def _durations(x: alt.X, ink: str) -> tuple[list[alt.Chart], list[alt.Tooltip]]:
    columns = [f"{name}_ms" for name in _TIMES]
    meaning = {f"{name}_ms": state for name, state in _TIMES.items()}
    stack = (
        _stack(x, columns, "column", "milliseconds")
        .transform_calculate(part="replace(datum.column, '_ms', '')")
        .encode(
            y=_y("low:Q", "ms a step"),
            color=coloured("part", {n.removesuffix("_ms"): s for n, s in meaning.items()}),
        )
    )
    shown = [
        *(alt.Tooltip(f"{n}_ms:Q", title=f"{n} (ms a step)", format=",.2f") for n in _TIMES),
        alt.Tooltip("step_ms_max:Q", title="longest step (ms)", format=",.2f"),
        alt.Tooltip("steps:Q", title="steps that ran the model", format=","),
    ]
    return [stack, _most(x, "step_ms_max", ink)], shown
