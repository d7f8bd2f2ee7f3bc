"""The page "Requests": all requests known at the moment, and one of them in detail."""

import pandas as pd
import streamlit as st

from dashboard.chart_spec import rows_high
from dashboard.markdown import escape
from dashboard.readable import plural
from dashboard.request_table import MAX_ENDED, RequestRow, ended_row, unfinished_rows
from dashboard.row_choice import clicked_row, mark_row
from dashboard.session import Look, Session
from dashboard.standing import shows, small
from dashboard.views.request_detail import request_detail

TABLE_KEY = "requests-table"
FILTER_KEY = "requests-filter"
SEARCH_KEY = "requests-search"
_FILTERS = ("all", "unfinished", "ended")


def requests_page(session: Session) -> None:
    """Draws the page; all of it refreshes together."""
    st.session_state.setdefault(FILTER_KEY, "all")
    _body(session)


@st.fragment(run_every=2.0)
def _body(session: Session) -> None:
    look = session.look()
    if not shows(look, "Requests"):
        return
    rows = _rows(look)
    if not rows:
        st.info(
            "No request is known at this moment. Send one to the engine, or move on to a later step.",
            icon=":material/inbox:",
        )
        return
    _table(session, look, rows)
    request = look.selection.request
    if request is None:
        st.info(
            "Select a row to see its block tables, its life and who shared its steps.",
            icon=":material/touch_app:",
        )
        return
    row = next((row for row in rows if row.request == request), None)
    if row is None:
        st.warning(
            f"Request {escape(request)} is not known at this moment: it had not come yet, or it ended "
            f"longer ago than the last {MAX_ENDED:,} that are kept.",
            icon=":material/search_off:",
        )
        return
    request_detail(session, look, row)


def _rows(look: Look) -> list[RequestRow]:
    ended = look.feed.ended(MAX_ENDED, look.upto)
    knows = look.header.knows
    return [*(look.read(unfinished_rows) or []), *(ended_row(e, knows) for e in ended)]


# -- the table ------------------------------------------------------------------------------------


def _table(session: Session, look: Look, rows: list[RequestRow]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.radio(
            "Show",
            _FILTERS,
            key=FILTER_KEY,
            horizontal=True,
            label_visibility="collapsed",
            help="Unfinished requests hold blocks or wait for them; ended ones were finished, "
            "aborted or rejected.",
        )
        st.text_input(
            "Search by request",
            key=SEARCH_KEY,
            type="search",
            placeholder="Part of a request's id or state",
            label_visibility="collapsed",
            width=320,
            live="300ms",
        )
        open_now = sum(1 for row in rows if not row.ended)
        small(f"{open_now:,} unfinished, {plural(len(rows) - open_now, 'ended request')} kept")
    shown = _chosen_rows(rows)
    mark_row(TABLE_KEY, [row.request for row in shown], look.selection.request)
    st.dataframe(
        _frame(shown),
        column_config=_COLUMNS,
        hide_index=True,
        height=rows_high(len(shown), 8),
        key=TABLE_KEY,
        placeholder="–",
        on_select=lambda: _picked_row(session),
        selection_mode="single-row",
        alt="Requests known at this moment",
    )


def _chosen_rows(rows: list[RequestRow]) -> list[RequestRow]:
    which = st.session_state.get(FILTER_KEY)
    words = (st.session_state.get(SEARCH_KEY) or "").strip().lower()
    return [
        row
        for row in rows
        if (which == "all" or row.ended == (which == "ended"))
        and (words in row.request.lower() or words in row.state.lower())
    ]


def _picked_row(session: Session) -> None:
    clicked, request = clicked_row(TABLE_KEY)
    if clicked:
        session.select(request=request)


def _frame(rows: list[RequestRow]) -> pd.DataFrame:
    columns = {
        "request": [row.request for row in rows],
        "state": [row.state for row in rows],
        "sequences": [row.sequences for row in rows],
        "prompt tokens": [row.prompt_tokens for row in rows],
        "output tokens": [row.output_tokens for row in rows],
        "blocks held": [row.blocks for row in rows],
        "preemptions": [row.preemptions for row in rows],
        "recomputed tokens": [row.recomputed_tokens for row in rows],
        "queue (s)": [row.queue_seconds for row in rows],
        "first token (s)": [row.first_token_seconds for row in rows],
        "duration (s)": [row.duration_seconds for row in rows],
    }
    frame = pd.DataFrame(columns)
    for name in frame.columns[2:8]:
        frame[name] = frame[name].astype("Int64")
    for name in frame.columns[8:]:
        frame[name] = frame[name].astype(float)
    return frame


def _number(label: str, help: str, **options: str) -> object:
    return st.column_config.NumberColumn(label, help=help, **options)


_COLUMNS = {
    "request": st.column_config.TextColumn("request", help="The request's id", pinned=True),
    "state": st.column_config.TextColumn(
        "state", help="Of its unfinished sequences, or how it ended"
    ),
    "sequences": _number("sequences", "Completions that it asked for (n)"),
    "prompt tokens": _number("prompt tokens", "Tokens of its prompt", format="localized"),
    "output tokens": _number(
        "output tokens", "Tokens drawn so far, of all its unfinished sequences", format="localized"
    ),
    "blocks held": _number("blocks held", "Different blocks in the tables of all its sequences"),
    "preemptions": _number("preemptions", "How often one of its sequences lost its blocks"),
    "recomputed tokens": _number(
        "recomputed tokens", "Tokens computed again after preemptions", format="localized"
    ),
    "queue (s)": _number(
        "queue (s)",
        "Seconds from arrival to its first schedule, told at its end; for a waiting one until now",
        format="%.3f",
    ),
    "first token (s)": _number(
        "first token (s)", "Seconds from arrival to its first token", format="%.3f"
    ),
    "duration (s)": _number(
        "duration (s)", "Seconds from arrival to its end, or to this moment", format="%.3f"
    ),
}
