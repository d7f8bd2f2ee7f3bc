"""The page "Requests": all requests known at the moment, and one of them in detail."""

import streamlit as st

from dashboard.chart_spec import rows_high
from dashboard.journal import MAX_ENDED
from dashboard.markdown import escape
from dashboard.readable import plural
from dashboard.request_table import (
    MAX_LISTED,
    RequestRow,
    ended_count,
    ended_row,
    unfinished_rows,
)
from dashboard.row_choice import clicked_row, mark_row
from dashboard.session import Look, Session
from dashboard.standing import shows, small
from dashboard.table_columns import config_of, decimal, frame_of, text, whole
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
    rows, ended = _known(look)
    if not rows:
        st.info(
            "No request is known at this moment. Send one to the engine, or move on to a later step.",
            icon=":material/inbox:",
        )
        return
    _table(session, look, rows, ended)
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


def _known(look: Look) -> tuple[list[RequestRow], int]:
    """The rows of this moment, and how many requests have ended, those that are forgotten too."""
    kept = look.feed.ended(MAX_ENDED, look.upto)
    knows = look.header.knows
    unfinished, ended = look.read(lambda state: (unfinished_rows(state), ended_count(state))) or (
        [],
        0,
    )
    return [*unfinished, *(ended_row(entry, knows) for entry in kept)], max(ended, len(kept))


# -- the table ------------------------------------------------------------------------------------


def _table(session: Session, look: Look, rows: list[RequestRow], ended: int) -> None:
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
        kept = len(rows) - open_now
        forgotten = f", of which the last {kept:,} are kept" if kept < ended else ""
        small(f"{open_now:,} unfinished, {ended:,} ended{forgotten}")
    chosen = _chosen_rows(rows)
    shown = chosen[:MAX_LISTED]
    if len(shown) < len(chosen):
        small(
            f"The first {MAX_LISTED:,} of {plural(len(chosen), 'request')}: a search finds the others."
        )
    mark_row(TABLE_KEY, [row.request for row in shown], look.selection.request)
    st.dataframe(
        frame_of(_COLUMNS, shown),
        column_config=config_of(_COLUMNS),
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


_COLUMNS = (
    text("request", lambda row: row.request, "The request's id", pinned=True),
    text("state", lambda row: row.state, "Of its unfinished sequences, or how it ended", width=130),
    whole("sequences", lambda row: row.sequences, "Completions that it asked for (n)"),
    whole(
        "prompt tokens", lambda row: row.prompt_tokens, "Tokens of its prompt", format="localized"
    ),
    whole(
        "output tokens",
        lambda row: row.output_tokens,
        "Tokens drawn so far, of all its unfinished sequences",
        format="localized",
    ),
    whole(
        "blocks held", lambda row: row.blocks, "Different blocks in the tables of all its sequences"
    ),
    whole(
        "preemptions", lambda row: row.preemptions, "How often one of its sequences lost its blocks"
    ),
    whole(
        "recomputed tokens",
        lambda row: row.recomputed_tokens,
        "Tokens computed again after preemptions",
        format="localized",
    ),
    decimal(
        "queue (s)",
        lambda row: row.queue_seconds,
        "Seconds from arrival to its first schedule, told at its end; for a waiting one until now",
        format="%.3f",
    ),
    decimal(
        "first token (s)",
        lambda row: row.first_token_seconds,
        "Seconds from arrival to its first token",
        format="%.3f",
    ),
    decimal(
        "duration (s)",
        lambda row: row.duration_seconds,
        "Seconds from arrival to its end, or to this moment",
        format="%.3f",
    ),
)
