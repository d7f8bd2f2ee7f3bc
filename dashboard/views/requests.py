"""The page "Requests": all requests known at the moment, and one of them in detail."""

import pandas as pd
import streamlit as st

from dashboard.chart_spec import rows_high
from dashboard.charts_requests import (
    TABLES_KEY,
    life_chart,
    tables_chart,
    tokens_chart,
)
from dashboard.links import page_link
from dashboard.markdown import escape
from dashboard.past import PastError
from dashboard.readable import UNKNOWN, count, plural, seconds, shortened
from dashboard.request_story import MAX_WORK, RequestStory
from dashboard.request_table import MAX_ENDED, RequestRow, ended_row, unfinished_rows
from dashboard.session import Look, Session
from dashboard.standing import shows
from dashboard.story_reader import StoryReader, arrival_of, start_of
from dashboard.table_cells import CELLS_PER_ROW, Tables, block_tables

TABLE_KEY = "requests-table"
FILTER_KEY = "requests-filter"
SEARCH_KEY = "requests-search"
_READER_KEY = "requests-story"
_SHOWN_KEY = "requests-shown"
MATES = 8
LONG_STORY = 1_000
"""Records from which on reading a story shows its progress."""
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
    _detail(session, look, row)


def _rows(look: Look) -> list[RequestRow]:
    ended = look.feed.ended(MAX_ENDED, look.upto)
    knows = look.header.knows
    return [*(look.read(unfinished_rows) or []), *(ended_row(e, knows) for e in ended)]


# -- the table ------------------------------------------------------------------------------------


def _table(session: Session, look: Look, rows: list[RequestRow]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.segmented_control(
            "Show",
            _FILTERS,
            key=FILTER_KEY,
            required=True,
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
        st.caption(f"{open_now:,} unfinished, {plural(len(rows) - open_now, 'ended request')} kept")
    shown = _chosen_rows(rows)
    names = [row.request for row in shown]
    selected = look.selection.request
    at = [names.index(selected)] if selected in names else []
    # What the browser marks is a row's number, and rows move: so the number follows the request.
    st.session_state[TABLE_KEY] = {"selection": {"rows": at}}
    st.session_state[_SHOWN_KEY] = names
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
    rows = st.session_state[TABLE_KEY].selection.rows
    names = st.session_state.get(_SHOWN_KEY, [])
    picked = names[rows[0]] if rows and rows[0] < len(names) else None
    session.select(request=picked)


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
    return st.column_config.NumberColumn(label, help=help, width="small", **options)


_COLUMNS = {
    "request": st.column_config.TextColumn("request", help="The request's id", width="medium"),
    "state": st.column_config.TextColumn(
        "state", help="Of its unfinished sequences, or how it ended", width="medium"
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
        "Seconds from arrival to its first schedule; for a waiting one until this moment",
        format="%.3f",
    ),
    "first token (s)": _number(
        "first token (s)", "Seconds from arrival to its first token", format="%.3f"
    ),
    "duration (s)": _number(
        "duration (s)", "Seconds from arrival to its end, or to this moment", format="%.3f"
    ),
}


# -- one request ----------------------------------------------------------------------------------


def _detail(session: Session, look: Look, row: RequestRow) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.markdown(f"#### Request {escape(row.request)}")
        st.caption(escape(row.state))
        if look.selection.block is not None:
            page_link(
                "pool",
                f"Block {look.selection.block} in the pool",
                ":material/grid_view:",
                "Shows the block that is pinned, with owners, content and history.",
            )
    if row.state.startswith("rejected"):
        st.caption("It was rejected on arrival: it never had a sequence.")
        return
    reader = st.session_state.setdefault(_READER_KEY, StoryReader())
    try:
        story = _read_story(reader, look, row)
    except PastError as error:
        st.info(f"Its records are not kept any more: {escape(str(error))}.", icon=":material/history:")
        story = None
    if story is not None:
        _figures(row, story)
    _block_tables(session, look, row, reader)
    if story is None:
        return
    _life(look, story)


def _read_story(reader: StoryReader, look: Look, row: RequestRow) -> RequestStory:
    upto, history = look.seq, look.feed.history
    ended = _ended(look, row.request)
    if ended is not None:
        upto = min(upto, ended.seq)
        arrived = arrival_of(ended, history, upto) if row.duration_seconds is not None else None
    else:
        arrived = look.read(lambda state: _arrived(state, row.request))
    start = look.oldest if arrived is None else start_of(history, arrived)
    if upto - start < LONG_STORY:
        return reader.story(look.feed.past, row.request, start, upto)
    with st.empty():
        bar = st.progress(0.0, "Reading the records of this request")
        story = reader.story(
            *(look.feed.past, row.request, start, upto),
            lambda done, total: bar.progress(min(1.0, done / max(1, total))),
        )
        bar.empty()
    return story


def _arrived(state: object, request: str) -> float | None:
    asked = state.requests.get(request)
    return None if asked is None else asked.arrived


def _ended(look: Look, request: str) -> object | None:
    ended = look.feed.ended(MAX_ENDED, look.upto)
    return next((entry for entry in ended if entry.request == request), None)


def _figures(row: RequestRow, story: RequestStory) -> None:
    waits = story.token_waits
    figures = [
        ("Prompt", _tokens(row.prompt_tokens), "Tokens of its prompt."),
        ("Output", _tokens(row.output_tokens), "Tokens drawn, of all its sequences."),
        ("Queue", _seconds(row.queue_seconds), "From its arrival to its first schedule."),
        ("First token", _seconds(row.first_token_seconds), "From its arrival to its first token."),
        (
            "Between tokens",
            _seconds(story.wait_seconds / waits if waits else None),
            "Mean time from one token of a sequence to its next, time spent preempted included. The "
            f"longest wait was {seconds(story.longest_wait)}.",
        ),
        ("Duration", _seconds(row.duration_seconds), "From its arrival to its end, or until now."),
        (
            "Preemptions",
            count(row.preemptions),
            "How often one of its sequences lost its blocks.",
        ),
        (
            "Recomputed",
            _tokens(row.recomputed_tokens),
            "Tokens computed again because of preemptions.",
        ),
    ]
    with st.container(horizontal=True, gap="small"):
        for label, value, help in figures:
            st.metric(label, value, help=help, width=136)


def _tokens(value: int | None) -> str:
    return UNKNOWN if value is None else plural(value, "token")


def _seconds(value: float | None) -> str:
    return "–" if value is None else seconds(value)


def _block_tables(session: Session, look: Look, row: RequestRow, reader: StoryReader) -> None:
    st.markdown(
        "**Block tables**",
        help="A row for each sequence: its logical blocks from left to right, each with the number of "
        "its physical block. A block that several tables point at is yellow, and joined to the cell "
        "below that is the same block. Click a cell to pin its block for the page Pool.",
    )
    if "physical_blocks" not in look.header.knows:
        st.caption("This source does not tell which blocks its sequences use.")
        return
    tables, when = _tables(look, row, reader)
    if not tables.cells:
        st.caption(f"It holds no blocks {when}.")
        return
    notes = [f"as they are {when}"]
    if tables.all_rows > tables.rows:
        notes.append(f"the first {tables.rows} of {tables.all_rows} rows")
    if any(cell.index >= CELLS_PER_ROW for cell in tables.cells):
        notes.append(f"“7 +{CELLS_PER_ROW}” goes on with sequence 7 at index {CELLS_PER_ROW}")
    st.caption("; ".join(notes) + ". Click a cell to pin its block.")
    tables_chart(tables, look.selection.block, lambda: _picked_block(session))


def _tables(look: Look, row: RequestRow, reader: StoryReader) -> tuple[Tables, str]:
    ended = _ended(look, row.request)
    if ended is None:
        tables = look.read(lambda state: block_tables(state, row.request))
        return tables or Tables([], [], 0, 0), f"at step {max(0, look.step):,}"
    state = reader.state_before(look.feed.past, ended.seq)
    if state is None:
        return Tables([], [], 0, 0), "any more, and what it held before it ended is not kept"
    when = f"before its last step, step {ended.step:,}"
    return block_tables(state, row.request), when


def _picked_block(session: Session) -> None:
    picked = st.session_state[TABLES_KEY].selection.get("picked") or []
    blocks = [point["block"] for point in picked if point.get("block") is not None]
    if blocks:
        session.select(block=int(blocks[0]))


def _life(look: Look, story: RequestStory) -> None:
    st.markdown(
        "**Life**",
        help="What each of its sequences did: queued before its first schedule; prefill computes the "
        "prompt; decode draws tokens; preempted, without blocks; recompute computes again what a "
        "preemption threw away.",
    )
    if not story.whole:
        st.caption(
            "Its arrival is not among the records that are read, so the beginning is missing here."
        )
    for start, end in story.holes[-3:]:
        st.caption(f"Records of {seconds(max(0.0, end - start))} are missing in its life.")
    life_chart(story)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        last = f", the last {MAX_WORK:,} of {story.steps:,}" if story.steps > MAX_WORK else ""
        st.markdown(
            f"**Tokens a step** ({plural(story.steps, 'step')}{last})",
            help="Tokens of this request that each step computed, of all its sequences.",
        )
        if story.work:
            tokens_chart(story)
        else:
            st.caption("No step has computed any of its tokens by this moment.")
    with right:
        st.markdown(
            f"**Who shared its {plural(story.steps, 'step')}**",
            help="Other requests of which the same steps computed tokens: they share the model's "
            "time with this one, and compete for blocks.",
        )
        _mates(story)


def _mates(story: RequestStory) -> None:
    if not story.mates:
        st.caption("Nobody: its steps were its own.")
        return
    frame = pd.DataFrame(
        [
            {
                "request": shortened(request, 28),
                "steps together": steps,
                "share": 100.0 * steps / story.steps,
            }
            for request, steps in story.mates.most_common(MATES)
        ]
    )
    st.dataframe(
        frame,
        hide_index=True,
        key="request-mates",
        height="content",
        column_config={
            "request": st.column_config.TextColumn("request"),
            "steps together": st.column_config.NumberColumn(
                "steps together", help="Steps that computed tokens of both"
            ),
            "share": st.column_config.ProgressColumn(
                "share of its steps (%)",
                help="Steps together, of all steps of the selected request",
                format="%.0f %%",
                min_value=0,
                max_value=100,
            ),
        },
        alt="Requests that were computed in the same steps",
    )
    if len(story.mates) > MATES:
        st.caption(f"and {plural(len(story.mates) - MATES, 'other request')}")
