"""The page "Requests": a request's story, its tables, its row, and what the page shows of them."""

from pathlib import Path

import pytest

from dashboard.past import PastError
from dashboard.request_story import PhaseKind, RequestStory
from dashboard.request_table import ended_row, unfinished_rows
from dashboard.session import Session
from dashboard.story_reader import StoryReader, arrival_of, start_of
from dashboard.table_cells import CELLS_PER_ROW, MAX_ROWS, block_tables
from dashboard.views.requests import FILTER_KEY, SEARCH_KEY
from engine.events import PoolState, encode
from engine.events.records import (
    Allocate,
    BlockSource,
    Computed,
    FinishReason,
    Fork,
    LookupStop,
    Preempt,
    PreemptWhy,
    PrefixLookup,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Share,
    ShareWhy,
)
from tests.dashboard.apps import page_app, session_of, texts
from tests.dashboard.folding import fed, folded, remembered, steps_of
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe, header
from tests.dashboard.tiny import added, empty_state, step

FREE = BlockSource.FREE


def told(*steps: object, request: str = "mine") -> RequestStory:
    story = RequestStory(request)
    story.load(empty_state())
    for record in steps:
        story.note(record)
    return story


def phases(story: RequestStory) -> list[tuple[int, str, float, float]]:
    return [(p.sequence, p.kind.value, p.start, p.end) for p in story.phases()]


def test_a_life_goes_from_the_queue_over_prefill_and_preemption_back_to_decode() -> None:
    story = told(
        step(0, 100.0, added("mine", 1)),
        step(1, 101.0, SequenceScheduled(1, ScheduledKind.FIRST), Computed(1, 3)),
        step(2, 102.0, Computed(1, 1)),
        step(3, 103.0, Computed(1, 1)),
        step(4, 104.0, Preempt(1, PreemptWhy.NO_FREE_BLOCK, 1, 1, 5)),
        step(5, 106.0, PrefixLookup(1, 6, 0, LookupStop.MISS, True), Computed(1, 6, 5)),
        step(6, 107.0, Computed(1, 1), SequenceFinished(1, FinishReason.LENGTH, 4)),
    )
    assert phases(story) == [
        (1, "queued", 99.5, 101.0),
        (1, "prefill", 101.0, 103.0),
        (1, "decode", 103.0, 104.0),
        (1, "preempted", 104.0, 106.0),
        (1, "recompute", 106.0, 107.0),
        (1, "decode", 107.0, 107.5),
    ]
    assert story.whole
    assert story.queue_seconds == 1.5
    assert story.steps == 5
    # Tokens came at 102.5, 103.5, 106.5 and 107.5.
    assert (story.token_waits, story.wait_seconds, story.longest_wait) == (3, 5.0, 3.0)
    assert [(w.prefill, w.decode, w.recompute) for w in story.work] == [
        (3, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 1, 5),
        (0, 1, 0),
    ]


def test_what_the_prefix_cache_had_counts_as_computed() -> None:
    story = told(
        step(0, 100.0, added("mine", 1), PrefixLookup(1, 4, 3, LookupStop.LAST_TOKEN_KEPT)),
        step(1, 101.0, Computed(1, 1)),
        step(2, 102.0, Computed(1, 1)),
    )
    assert [(work.prefill, work.decode) for work in story.work] == [(1, 0), (0, 1)]
    assert story.token_waits == 1


def test_a_fork_begins_to_decode_when_its_step_ends() -> None:
    story = told(
        step(0, 100.0, added("mine", 1, n=2), Computed(1, 4), Fork(1, 2)),
        step(1, 101.0, Computed(1, 1), Computed(2, 1)),
    )
    assert (2, "decode", 100.5, 101.5) in phases(story)


def test_mates_are_requests_computed_in_the_same_steps() -> None:
    story = told(
        step(0, 100.0, added("mine", 1), added("other", 2), added("late", 3), Computed(1, 4)),
        step(1, 101.0, Computed(1, 1), Computed(2, 4)),
        step(2, 102.0, Computed(1, 1), Computed(2, 1), Computed(3, 4)),
        step(3, 103.0, Computed(2, 1), Computed(3, 1)),
    )
    assert dict(story.mates) == {"other": 2, "late": 1}
    assert story.steps == 3


def test_missing_records_end_the_phases_and_are_told() -> None:
    story = told(step(0, 100.0, added("mine", 1), Computed(1, 4)))
    state = empty_state()
    state.apply(step(0, 100.0, added("mine", 1)))
    state.seq, state.time = 7, 120.0
    story.load(state)
    story.note(step(8, 121.0))
    assert story.holes == [(100.5, 120.0)]
    assert (1, "prefill", 100.0, 100.5) in phases(story)
    assert all(p.end <= 100.5 or p.start >= 99.5 for p in story.phases())
    assert story.phases()[-1].kind is PhaseKind.QUEUED


def test_a_story_told_from_the_middle_does_not_claim_to_be_whole() -> None:
    state = empty_state()
    state.apply(step(0, 100.0, added("mine", 1), Allocate(0, 1, 0, FREE), Computed(1, 4)))
    story = RequestStory("mine")
    story.load(state)
    story.note(step(1, 101.0, Computed(1, 1)))
    assert not story.whole
    assert story.queue_seconds is None
    assert [work.decode for work in story.work] == [1]


def test_a_story_agrees_with_what_the_engine_says_at_the_end(small_trace: Path) -> None:
    feed = fed(SimulatedEngine(48, seed=3, max_running=8), 200)
    checked = 0
    for ended in feed.ended(100):
        arrived = arrival_of(ended, feed.history, ended.seq)
        start = start_of(feed.history, arrived)
        story = StoryReader().story(feed.past, ended.request, start, ended.seq)
        assert story.whole
        assert story.finished.request == ended.request
        assert sum(work.recompute for work in story.work) == ended.recomputed_tokens
        preempted = [p for p in story.phases() if p.kind is PhaseKind.PREEMPTED]
        assert len(preempted) <= ended.preemptions
        checked += ended.preemptions
    assert checked > 3, "the trace has too few preemptions to show anything"


def test_a_reader_goes_on_where_it_was_and_begins_again_when_the_moment_goes_back() -> None:
    past = remembered(SimulatedEngine(48, seed=3, max_running=8), 60)
    reader = StoryReader()
    first = reader.story(past, "req-2", -1, 20)
    on = reader.story(past, "req-2", -1, 40)
    assert on is first
    back = reader.story(past, "req-2", -1, 30)
    assert back is not first
    fresh = StoryReader().story(past, "req-2", -1, 30)
    assert (back.phases(), list(back.work)) == (fresh.phases(), list(fresh.work))
    whole = StoryReader().story(past, "req-2", -1, 40)
    assert (on.phases(), on.mates) == (whole.phases(), whole.mates)


def test_a_reader_crosses_a_hole_and_says_so() -> None:
    engine = SimulatedEngine(48, seed=3, max_running=8)
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    past = remembered(engine, 0)
    for number in range(40):
        record = engine.step()
        state.apply(record)
        if number == 20:
            past.begin(state)
        elif not 15 <= number < 20:
            past.append(encode(record), state)
    story = StoryReader().story(past, "req-1", -1, 39)
    assert len(story.holes) == 1
    assert story.seq == 39


def test_a_story_of_records_that_are_gone_is_an_error() -> None:
    past = remembered(SimulatedEngine(48, seed=3), 0)
    past._segments.clear()
    with pytest.raises(PastError):
        StoryReader().story(past, "req-1", -1, 5)


# -- tables ---------------------------------------------------------------------------------------


def state_with_shared_prefix() -> PoolState:
    """Sequences 1 and 2 of "mine" share block 5 at index 0; "other" shares block 6 with sequence 2."""
    state = empty_state(64)
    state.apply(
        step(
            0,
            100.0,
            added("mine", 1, 40, n=2),
            added("other", 9, 40),
            Allocate(5, 1, 0, FREE),
            Computed(1, 16),
            Fork(1, 2),
            Share(5, 2, 0, ShareWhy.FORK),
            Allocate(7, 1, 1, FREE),
            Allocate(6, 2, 1, FREE),
            Allocate(8, 9, 0, FREE),
            Share(6, 9, 1, ShareWhy.PREFIX),
            Computed(1, 4),
        )
    )
    return state


def test_tables_name_every_cell_and_join_equal_blocks() -> None:
    tables = block_tables(state_with_shared_prefix(), "mine")
    assert [(c.sequence, c.index, c.block, c.shared) for c in tables.cells] == [
        (1, 0, 5, True),
        (1, 1, 7, False),
        (2, 0, 5, True),
        (2, 1, 6, True),
    ]
    assert [(j.block, j.label, j.label_below) for j in tables.joins] == [(5, "1", "2")]
    by_block = {(c.sequence, c.block): c for c in tables.cells}
    assert by_block[1, 5].others == "sequence 2"
    assert by_block[2, 6].others == "request other"
    assert by_block[1, 7].others == "nobody"
    assert (by_block[1, 5].ref_count, by_block[1, 5].filled, by_block[1, 7].filled) == (2, 16, 4)


def test_long_tables_go_on_in_rows_of_their_own_up_to_a_bound() -> None:
    count = CELLS_PER_ROW * (MAX_ROWS + 2)
    state = empty_state(count)
    blocks = [Allocate(block, 1, block, FREE) for block in range(count)]
    state.apply(step(0, 100.0, added("mine", 1, 9), *blocks))
    tables = block_tables(state, "mine")
    assert (tables.rows, tables.all_rows) == (MAX_ROWS, MAX_ROWS + 2)
    assert len(tables.cells) == CELLS_PER_ROW * MAX_ROWS
    second = tables.cells[CELLS_PER_ROW]
    assert (second.label, second.column, second.index) == ("1 +24", 0, CELLS_PER_ROW)


def test_what_a_source_does_not_know_is_unknown_in_cells_and_rows() -> None:
    state = PoolState(header(8, knows=["physical_blocks"]))
    state.apply(empty_keyframe())
    state.apply(step(0, 100.0, added("mine", 1), Allocate(3, 1, 0, FREE)))
    cell = block_tables(state, "mine").cells[0]
    assert (cell.ref_count, cell.filled) == (None, None)
    assert unfinished_rows(state)[0].recomputed_tokens is None
    assert unfinished_rows(state)[0].blocks == 1


def test_rows_of_unfinished_requests_say_what_the_state_says(small_trace: Path) -> None:
    state = folded(small_trace, 120)
    rows = unfinished_rows(state)
    assert {row.request for row in rows} == set(state.requests)
    assert [row.blocks for row in rows] == sorted((row.blocks for row in rows), reverse=True)
    for row in rows:
        asked = state.requests[row.request]
        own = [s for s in state.sequences.values() if s.request == row.request]
        assert row.output_tokens == sum(state.tally.output_tokens(s.sequence) for s in own)
        assert row.duration_seconds == pytest.approx(state.time - asked.arrived)
        assert (row.preemptions, row.sequences) == (asked.preemptions, asked.n)


def test_an_ended_row_of_a_source_without_latencies_has_none() -> None:
    feed = fed(SimulatedEngine(48, seed=3, max_running=8), 150)
    ended = feed.ended(1)[0]
    assert ended_row(ended, ["latencies", "recompute"]).duration_seconds == ended.duration_seconds
    assert ended_row(ended, []).duration_seconds is None
    assert ended_row(ended, []).recomputed_tokens is None


# -- the page -------------------------------------------------------------------------------------


def test_the_page_lists_what_was_known_at_the_moment_and_no_more(watched: Path) -> None:
    app = page_app("requests", seq="120")
    table = app.dataframe[0].value
    state = folded(watched, 120)
    ended = {
        event.request
        for record in steps_of(watched)[:121]
        for event in record.events
        if type(event).__name__ in ("RequestFinished", "RequestRejected")
    }
    assert set(table["request"]) == set(state.requests) | ended
    assert "what came later is not shown" in texts(app)
    assert "Select a row" in texts(app)


def test_filter_and_search_choose_rows(watched: Path) -> None:
    app = page_app("requests", seq="120")
    state = folded(watched, 120)
    app.session_state[FILTER_KEY] = "unfinished"
    app.run(timeout=30)
    assert set(app.dataframe[0].value["request"]) == set(state.requests)
    name = next(iter(state.requests))
    app.text_input(key=SEARCH_KEY).set_value(name).run(timeout=30)
    assert all(name in request for request in app.dataframe[0].value["request"])
    assert len(app.dataframe[0].value) >= 1


def test_a_search_finds_requests_beyond_those_that_are_listed(
    watched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.views.requests.MAX_LISTED", 2)
    app = page_app("requests", seq="199")
    app.session_state[FILTER_KEY] = "ended"
    app.run(timeout=30)
    ended = [
        event.request
        for record in steps_of(watched)
        for event in record.events
        if type(event).__name__ in ("RequestFinished", "RequestRejected")
    ]
    assert list(app.dataframe[0].value["request"]) == ended[:-3:-1]
    assert f"The first 2 of {len(ended):,} requests" in texts(app)
    assert f"{len(ended):,} ended" in texts(app)
    app.text_input(key=SEARCH_KEY).set_value(ended[0]).run(timeout=30)
    assert ended[0] in set(app.dataframe[0].value["request"])


def test_requests_that_are_forgotten_are_counted(
    watched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.views.requests.MAX_ENDED", 3)
    ended = sum(folded(watched, 150).tally.totals.requests_finished.values())
    said = texts(page_app("requests", seq="150"))
    assert ended > 3
    assert f"{ended:,} ended, of which the last 3 are kept" in said


def test_a_selected_request_is_told_in_detail_and_survives_reruns(watched: Path) -> None:
    state = folded(watched, 120)
    name = max(state.requests, key=lambda request: state.requests[request].preemptions)
    app = page_app("requests", seq="120", request=name)
    for _ in range(2):
        said = texts(app)
        assert f"Request {name}".replace("-", "\\-") in said
        assert "**Block tables**" in said
        assert "**Life**" in said
        metrics = {metric.label: metric.value for metric in app.metric}
        assert metrics["Preemptions"] == str(state.requests[name].preemptions)
        assert session_of(app).selection.request == name
        app.run(timeout=30)


def test_a_request_that_has_not_come_yet_is_not_told(watched: Path) -> None:
    later = [name for name in folded(watched).requests if name not in folded(watched, 10).requests]
    app = page_app("requests", seq="10", request=later[0])
    assert "is not known at this moment" in texts(app)
    assert "**Life**" not in texts(app)


def test_an_ended_request_shows_the_tables_that_it_had_before_its_end(watched: Path) -> None:
    feed_session = page_app("requests", seq="190")
    session: Session = session_of(feed_session)
    ended = session.feed.ended(1, 190)[0]
    app = page_app("requests", seq="190", request=ended.request)
    assert f"before its last step, step {ended.step}" in texts(app)
    assert "Its records are not kept" not in texts(app)


def test_before_the_first_request_the_page_says_what_to_do(watched: Path) -> None:
    assert "Send one to the engine" in texts(page_app("requests", seq="-1"))
