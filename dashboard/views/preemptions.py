"""The page "Preemptions": what each one was about, what it cost, and who paid."""

import streamlit as st

from dashboard.chart_spec import rows_high
from dashboard.charts_preemptions import CHART_KEY, preemptions_chart
from dashboard.preemption_log import Outcome, Preemption
from dashboard.preemption_totals import Cost, by_request, total
from dashboard.readable import UNKNOWN, count, percent, plural, seconds
from dashboard.row_choice import clicked_row, mark_row
from dashboard.session import Session
from dashboard.standing import shows
from dashboard.table_columns import Column, config_of, decimal, frame_of, text, whole
from dashboard.views.preemption_story import preemption_story

TABLE_KEY = "preemptions-table"
_CHOSEN_KEY = "preemptions-chosen"
MAX_SHOWN = 1_000
MAX_REQUESTS = 50


def preemptions_page(session: Session) -> None:
    """Draws the page; all of it refreshes together."""
    _body(session)


@st.fragment(run_every=2.0)
def _body(session: Session) -> None:
    look = session.look()
    if not shows(look, "Preemptions"):
        return
    stories = look.feed.preemptions(look.upto)
    if not stories:
        st.info(
            "No sequence has lost its blocks by this moment: the pool had room for everybody. A "
            "smaller pool or more requests at once would show some.",
            icon=":material/check_circle:",
        )
        return
    recompute = "recompute" in look.header.knows
    _figures(total(stories), recompute)
    preemption_story(session, look, _chosen(stories))
    st.markdown(
        "**Tokens lost, by step**",
        help="Each bar is a step that preempted. Tokens that were still in the prefix cache when the "
        "sequence resumed cost nothing; the others were computed again. Click a bar to go there.",
    )
    preemptions_chart(stories, lambda: _clicked_chart(session))
    _table(stories, recompute)
    left, right = st.columns(2, gap="medium")
    with left:
        _totals(stories, needy=False, recompute=recompute)
    with right:
        _totals(stories, needy=True, recompute=recompute)


def _figures(cost: Cost, recompute: bool) -> None:
    over = cost.count - cost.open
    figures = [
        ("Preemptions", count(cost.count), "Running sequences that lost their blocks."),
        (
            "Blocks released",
            count(cost.blocks),
            "Table entries that the victims gave up. Shared blocks stay with their other owners.",
        ),
        ("Tokens lost", count(cost.lost), "Computed tokens whose KV the victims gave up."),
        (
            "Still cached",
            percent(cost.found, cost.lost),
            "Of the tokens lost, those that the prefix cache still had when the victim resumed: "
            f"{plural(cost.found, 'token')}.",
        ),
        (
            "Recomputed",
            plural(cost.recomputed, "token") if recompute else UNKNOWN,
            "Tokens computed again after resuming.",
        ),
        (
            "Work repeated",
            seconds(cost.work_seconds) if recompute else UNKNOWN,
            "The share of the steps' durations that recomputed tokens had in their tokens.",
        ),
        (
            "Mean delay",
            seconds(cost.delay_seconds / over) if over and recompute else "–",
            "From losing its blocks to being back where it was, over the "
            f"{plural(over, 'preemption')} that are over; {cost.open:,} are not.",
        ),
    ]
    with st.container(horizontal=True, gap="small"):
        for label, value, help in figures:
            st.metric(label, value, help=help, width=150)


def _name(story: Preemption) -> tuple[int, int]:
    return story.seq, story.sequence


def _chosen(stories: list[Preemption]) -> Preemption:
    """The one that is picked, while it is known; else the newest."""
    wanted = st.session_state.get(_CHOSEN_KEY)
    return next((story for story in stories if _name(story) == wanted), stories[0])


def _clicked_chart(session: Session) -> None:
    points = st.session_state[CHART_KEY].selection.get("picked") or []
    steps = [point["step"] for point in points if point.get("step") is not None]
    if not steps:
        return
    look = session.look()
    stories = look.feed.preemptions(look.upto)
    story = next((story for story in stories if story.step == int(steps[0])), None)
    if story is not None:
        st.session_state[_CHOSEN_KEY] = _name(story)
        session.go(story.seq)


# -- tables ---------------------------------------------------------------------------------------


def _table(stories: list[Preemption], recompute: bool) -> None:
    shown = stories[:MAX_SHOWN]
    left_out = f", the last {MAX_SHOWN:,} of {len(stories):,}" if len(stories) > MAX_SHOWN else ""
    st.markdown(
        f"**Every preemption, the newest first{left_out}**",
        help="Select a row to read it as a story above.",
    )
    mark_row(TABLE_KEY, [_name(story) for story in shown], st.session_state.get(_CHOSEN_KEY))
    columns = _columns(recompute)
    st.dataframe(
        frame_of(columns, shown),
        column_config=config_of(columns),
        hide_index=True,
        height=rows_high(len(shown), 8),
        key=TABLE_KEY,
        placeholder="–",
        on_select=_picked_row,
        selection_mode="single-row",
        alt="Every preemption known at this moment",
    )


def _picked_row() -> None:
    clicked, name = clicked_row(TABLE_KEY)
    if clicked:
        st.session_state[_CHOSEN_KEY] = name


def _columns(recompute: bool) -> tuple[Column[Preemption], ...]:
    return (
        whole("step", lambda s: s.step, "The step that preempted", format="localized"),
        text("victim", lambda s: s.request, "The request that lost its blocks"),
        whole("sequence", lambda s: s.sequence, "Which of its sequences"),
        text(
            "needed by",
            lambda s: "itself" if s.needy_sequence == s.sequence else s.needy,
            "The request that needed a block",
        ),
        whole(
            "blocks released",
            lambda s: s.blocks_released,
            "Entries of its block table that it gave up",
        ),
        whole("tokens lost", lambda s: s.tokens_lost, "Computed tokens whose KV it gave up"),
        whole(
            "resumed in step",
            lambda s: s.resumed_step,
            "The step that gave it blocks again",
            format="localized",
        ),
        whole(
            "still cached",
            lambda s: s.found,
            "Tokens that the prefix cache still had on resuming",
        ),
        whole(
            "recomputed",
            lambda s: s.recomputed if recompute else None,
            "Tokens that were computed again",
        ),
        decimal(
            "away (s)",
            lambda s: s.away_seconds,
            "Seconds from losing its blocks to resuming",
            format="%.3f",
        ),
        decimal(
            "delay (s)",
            lambda s: s.delay_seconds if recompute else None,
            "Seconds from losing its blocks to being back where it was",
            format="%.3f",
        ),
        text("outcome", lambda s: s.outcome.value, _OUTCOMES),
    )


_OUTCOMES = "; ".join(
    (
        f"{Outcome.WAITING.value}: without blocks",
        f"{Outcome.RESUMED.value}: computing again",
        f"{Outcome.CAUGHT_UP.value}: back where it was",
        f"{Outcome.ENDED.value}: finished or aborted before",
    )
)


def _totals(stories: list[Preemption], needy: bool, recompute: bool) -> None:
    title = "Who was given the room" if needy else "Who lost most"
    help = (
        "By the request that needed a block: what others, or itself, lost for it."
        if needy
        else "By the request that lost its blocks."
    )
    st.markdown(f"**{title}**", help=help)
    rows = by_request(stories, needy)[:MAX_REQUESTS]
    columns = _cost_columns(recompute)
    st.dataframe(
        frame_of(columns, rows),
        hide_index=True,
        height=rows_high(len(rows), 6),
        key=f"preemption-totals-{'needy' if needy else 'victims'}",
        placeholder="–",
        column_config=config_of(columns),
        alt=title,
    )


def _cost_columns(recompute: bool) -> tuple[Column[tuple[str, Cost]], ...]:
    return (
        text("request", lambda row: row[0], pinned=True),
        whole("preemptions", lambda row: row[1].count, "How often"),
        whole("blocks", lambda row: row[1].blocks, "Blocks released"),
        whole("tokens lost", lambda row: row[1].lost, "Computed tokens whose KV was given up"),
        whole(
            "recomputed",
            lambda row: row[1].recomputed if recompute else None,
            "Tokens computed again",
        ),
        decimal(
            "work (s)",
            lambda row: row[1].work_seconds if recompute else None,
            "Seconds of model work repeated",
            format="%.3f",
        ),
        decimal(
            "delay (s)",
            lambda row: row[1].delay_seconds if recompute else None,
            "Seconds until back, summed over those that are",
            format="%.3f",
        ),
    )
