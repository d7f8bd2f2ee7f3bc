"""One request in detail: its figures, its block tables, its life, and who shared its steps."""

import pandas as pd
import streamlit as st

from dashboard.charts_requests import TABLES_KEY, life_chart, tables_chart, tokens_chart
from dashboard.journal import MAX_ENDED, EndedRequest
from dashboard.links import page_link
from dashboard.markdown import escape
from dashboard.past import PastError
from dashboard.readable import UNKNOWN, count, plural, seconds, shortened
from dashboard.request_story import MAX_WORK, RequestStory
from dashboard.request_table import RequestRow
from dashboard.session import Look, Session
from dashboard.standing import small
from dashboard.story_reader import StoryReader, arrival_of, start_of
from dashboard.table_cells import CELLS_PER_ROW, Tables, block_tables
from engine.events import PoolState

_READER_KEY = "requests-story"
MATES = 8
LONG_STORY = 1_000
"""Records from which on reading a story shows its progress."""


def request_detail(session: Session, look: Look, row: RequestRow) -> None:
    """Draw it as of the look's moment, whether it is unfinished or has ended."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.markdown(f"#### Request {escape(row.request)}")
        small(escape(row.state))
        if look.selection.block is not None:
            page_link(
                "pool",
                f"Block {look.selection.block} in the pool",
                ":material/grid_view:",
                "Shows the block that is pinned, with owners, content and history.",
            )
    if row.state.startswith("rejected"):
        small("It was rejected on arrival: it never had a sequence.")
        return
    reader = st.session_state.setdefault(_READER_KEY, StoryReader())
    try:
        story = _read_story(reader, look, row)
    except PastError as error:
        st.info(
            f"Its records are not kept any more: {escape(str(error))}.", icon=":material/history:"
        )
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


def _arrived(state: PoolState, request: str) -> float | None:
    asked = state.requests.get(request)
    return None if asked is None else asked.arrived


def _ended(look: Look, request: str) -> EndedRequest | None:
    ended = look.feed.ended(MAX_ENDED, look.upto)
    return next((entry for entry in ended if entry.request == request), None)


def _figures(row: RequestRow, story: RequestStory) -> None:
    waits = story.token_waits
    queue = story.queue_seconds if row.queue_seconds is None else row.queue_seconds
    figures = [
        ("Prompt", _tokens(row.prompt_tokens), "Tokens of its prompt."),
        ("Output", _tokens(row.output_tokens), "Tokens drawn, of all its sequences."),
        ("Queue", _seconds(queue), "From its arrival to its first schedule."),
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
        small("This source does not tell which blocks its sequences use.")
        return
    tables, when = _tables(look, row, reader)
    if not tables.cells:
        small(f"It holds no blocks {when}.")
        return
    notes = [f"as they are {when}"]
    if tables.all_rows > tables.rows:
        notes.append(f"the first {tables.rows} of {tables.all_rows} rows")
    if any(cell.index >= CELLS_PER_ROW for cell in tables.cells):
        notes.append(f"“7 +{CELLS_PER_ROW}” goes on with sequence 7 at index {CELLS_PER_ROW}")
    small("; ".join(notes) + ". Click a cell to pin its block.")
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
        small(
            "Its arrival is not among the records that are read, so the beginning is missing here."
        )
    for start, end in story.holes[-3:]:
        small(f"Records of {seconds(max(0.0, end - start))} are missing in its life.")
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
            small("No step has computed any of its tokens by this moment.")
    with right:
        st.markdown(
            f"**Who shared its {plural(story.steps, 'step')}**",
            help="Other requests of which the same steps computed tokens: they share the model's "
            "time with this one, and compete for blocks.",
        )
        _mates(story)


def _mates(story: RequestStory) -> None:
    if not story.mates:
        small("Nobody: its steps were its own.")
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
        small(f"and {plural(len(story.mates) - MATES, 'other request')}")
