"""The charts of one request: its block tables, its life as bars, and its tokens by step."""

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from dashboard.chart_spec import as_spec, coloured, ink, palette
from dashboard.request_story import PhaseKind, RequestStory
from dashboard.table_cells import CELLS_PER_ROW, Tables

ROW_HEIGHT = 26
TABLES_KEY = "request-tables"
_PHASES = {
    PhaseKind.QUEUED.value: "free",
    PhaseKind.PREFILL.value: "cached",
    PhaseKind.DECODE.value: "used",
    PhaseKind.PREEMPTED.value: "preempted",
    PhaseKind.RECOMPUTE.value: "shared",
}
_OWNED = {"one owner": "used", "shared": "shared"}
_TOKENS = {"prefill": "cached", "decode": "used", "recompute": "shared"}


@st.cache_resource(show_spinner=False, max_entries=64)
def tables_spec(rows: int, ink: str) -> dict[str, Any]:
    """Block tables in `rows` rows: cells with block numbers in `ink`, equal blocks joined by a line.

    Expects rows of kind "cell" (row, label, column, block, state ...) and "join" (label, label_below).
    """
    y = alt.Y(
        "label:N",
        title="sequence",
        sort=alt.EncodingSortField(field="row", op="min"),
        scale=alt.Scale(paddingInner=0.28, paddingOuter=0.1),
        axis=alt.Axis(ticks=False, domain=False),
    )
    x = alt.X(
        "column:O",
        title="logical block (index in the table)",
        scale=alt.Scale(domain=list(range(CELLS_PER_ROW)), paddingInner=0.06, paddingOuter=0.02),
        axis=alt.Axis(labelAngle=0, ticks=False, domain=False, orient="top"),
    )
    base = alt.Chart(alt.NamedData("cells"))
    cells = base.transform_filter("datum.kind == 'cell'")
    picked = alt.selection_point(name="picked", fields=["block"], on="click", empty=False)
    colour = coloured("state", _OWNED)
    joins = (
        base.transform_filter("datum.kind == 'join'")
        .mark_rule(strokeWidth=5, opacity=1)
        # At the cells' left, for their numbers stand in the middle.
        .encode(x=alt.X("column:O", bandPosition=0.1), y=y, y2="label_below:N", color=colour)
    )
    boxes = (
        cells.mark_rect(cornerRadius=3, strokeWidth=2, cursor="pointer")
        .encode(
            x=x,
            y=y,
            color=colour,
            fillOpacity=alt.condition("datum.state == 'shared'", alt.value(0.3), alt.value(0.16)),
            stroke=alt.Stroke("state:N", scale=palette(_OWNED), legend=None),
            strokeWidth=alt.condition("datum.pinned", alt.value(4), alt.value(1.5)),
            tooltip=[
                alt.Tooltip("block:Q", title="physical block"),
                alt.Tooltip("sequence:Q", title="sequence"),
                alt.Tooltip("index:Q", title="logical index"),
                alt.Tooltip("refs:N", title="ref count"),
                alt.Tooltip("filled:N", title="slots filled"),
                alt.Tooltip("others:N", title="also held by"),
            ],
        )
        .add_params(picked)
    )
    numbers = cells.mark_text(fontSize=10, cursor="pointer", color=ink).encode(
        x=x, y=y, text="block:Q"
    )
    chart = alt.layer(joins, boxes, numbers).properties(height=ROW_HEIGHT * rows + 8)
    return as_spec(chart)


def tables_chart(tables: Tables, pinned: int | None, on_click: Any) -> None:
    """Draw block tables; `on_click` is called when a block is picked (selection "picked")."""
    cells = [
        {
            "kind": "cell",
            "row": cell.row,
            "label": cell.label,
            "label_below": cell.label,
            "column": cell.column,
            "state": "shared" if cell.shared else "one owner",
            "block": cell.block,
            "sequence": cell.sequence,
            "index": cell.index,
            "refs": "unknown" if cell.ref_count is None else str(cell.ref_count),
            "filled": "unknown" if cell.filled is None else str(cell.filled),
            "others": cell.others,
            "pinned": cell.block == pinned,
        }
        for cell in tables.cells
    ]
    joins = [
        {
            "kind": "join",
            "row": join.row,
            "label": join.label,
            "label_below": join.label_below,
            "column": join.column,
            "state": "shared",
            "block": join.block,
        }
        for join in tables.joins
    ]
    st.vega_lite_chart(
        pd.DataFrame(cells + joins),
        tables_spec(tables.rows, ink()),
        key=TABLES_KEY,
        width="stretch",
        on_select=on_click,
        selection_mode="picked",
        alt="Block tables of the request: a row for each sequence, a cell for each logical block "
        "with the number of its physical block; shared blocks are joined",
    )


@st.cache_resource(show_spinner=False, max_entries=64)
def life_spec(rows: int) -> dict[str, Any]:
    """Phases as bars, a row for each sequence. Expects sequence, phase, start, end, seconds, step."""
    base = alt.Chart(alt.NamedData("phases"))
    chart = (
        base.mark_bar(cornerRadius=2, strokeWidth=1, stroke="#8A94A6")
        .encode(
            x=alt.X("start:Q", title="seconds since the first moment shown", scale=_TIGHT),
            x2="end:Q",
            y=alt.Y("sequence:N", title="sequence", axis=alt.Axis(ticks=False)),
            color=coloured("phase", _PHASES),
            tooltip=[
                alt.Tooltip("sequence:N"),
                alt.Tooltip("phase:N"),
                alt.Tooltip("start:Q", title="from (s)", format=".3f"),
                alt.Tooltip("end:Q", title="to (s)", format=".3f"),
                alt.Tooltip("seconds:Q", title="lasted (s)", format=".3f"),
                alt.Tooltip("step:Q", title="began in step"),
            ],
        )
        .properties(height=22 * rows + 12)
    )
    return as_spec(chart)


_TIGHT = alt.Scale(nice=False, zero=True)
_WHOLE = alt.Axis(tickMinStep=1, format=",d")


def life_chart(story: RequestStory) -> None:
    """Draw what each sequence of the request did, over time."""
    phases = story.phases()
    zero = min((phase.start for phase in phases), default=0.0)
    frame = pd.DataFrame(
        {
            "sequence": [str(phase.sequence) for phase in phases],
            "phase": [phase.kind.value for phase in phases],
            "start": [phase.start - zero for phase in phases],
            "end": [phase.end - zero for phase in phases],
            "seconds": [phase.end - phase.start for phase in phases],
            "step": [phase.step for phase in phases],
        }
    )
    st.vega_lite_chart(
        frame,
        life_spec(max(1, frame["sequence"].nunique())),
        key="request-life",
        width="stretch",
        alt="For each sequence of the request, when it was queued, prefilled, decoded, preempted "
        "and recomputed",
    )


@st.cache_resource(show_spinner=False)
def tokens_spec() -> dict[str, Any]:
    """Tokens of the request by step, stacked by kind. Expects step, next, prefill, decode, recompute."""
    kinds = list(_TOKENS)
    chart = (
        alt.Chart(alt.NamedData("work"))
        .transform_fold(kinds, as_=["kind", "tokens"])
        .transform_stack(stack="tokens", as_=["low", "high"], groupby=["step"])
        .mark_rect()
        .encode(
            x=alt.X("step:Q", title="step", scale=alt.Scale(nice=False, zero=False), axis=_WHOLE),
            x2="next:Q",
            y=alt.Y("low:Q", title="tokens a step", axis=alt.Axis(tickMinStep=1)),
            y2="high:Q",
            color=coloured("kind", _TOKENS),
            tooltip=[
                alt.Tooltip("step:Q"),
                *(alt.Tooltip(f"{kind}:Q", title=f"{kind} tokens") for kind in kinds),
            ],
        )
        .properties(height=150)
    )
    return as_spec(chart)


def tokens_chart(story: RequestStory) -> None:
    """Draw the tokens that each of the request's last steps computed."""
    frame = pd.DataFrame(
        [
            {
                "step": work.step,
                "next": work.step + 1,
                "prefill": work.prefill,
                "decode": work.decode,
                "recompute": work.recompute,
            }
            for work in story.work
        ]
    )
    st.vega_lite_chart(
        frame,
        tokens_spec(),
        key="request-tokens",
        width="stretch",
        alt="Tokens of the request that each step computed: prefill, decode, recompute",
    )
