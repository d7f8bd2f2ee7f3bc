"""The feed: what it shows equals a direct fold, and what is missing is said."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dashboard import replay
from dashboard.feed import Feed, Phase
from dashboard.journal import LineKind
from dashboard.live import follow_engine
from dashboard.pool_socket import Viewer
from dashboard.replay import play_trace
from dashboard.source import parse_source
from engine.events import PoolState, TraceReader, TraceWriter, encode
from engine.events.records import Gap, Keyframe, Preempt, RequestFinished, Step
from tests.dashboard.fake_engine import fake_engine
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe, header
from tests.dashboard.waiting import wait_for


@contextmanager
def running(pump: Callable, *args: object) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=pump, args=(*args, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)
        assert not thread.is_alive()


def folded(path: Path) -> PoolState:
    with TraceReader(path) as reader:
        state = PoolState(reader.header)
        for record in reader:
            state.apply(record)
    return state


def at_end(feed: Feed) -> bool:
    return "the end" in feed.status.text


def lines_of(feed: Feed, kind: LineKind) -> list[str]:
    return [line.text for line in feed.snapshot().lines if line.kind is kind]


def test_a_replay_ends_in_the_state_of_a_direct_fold(quick_trace: Path) -> None:
    feed, expected = Feed("trace"), folded(quick_trace)
    with running(play_trace, feed, quick_trace):
        wait_for(lambda: at_end(feed), what="the replay's end")
        assert feed.read(PoolState.keyframe) == expected.keyframe()
        snapshot = feed.snapshot()
    assert snapshot.status.phase is Phase.REPLAY
    assert f"step {expected.step} of {expected.step}" in snapshot.status.text
    figures = snapshot.figures
    assert (figures.active, figures.cached, figures.free) == (
        expected.active_blocks,
        expected.cached_blocks,
        expected.free_blocks,
    )
    assert figures.slots_filled == expected.slots_filled
    assert figures.recomputed_tokens == expected.totals.recompute_tokens
    assert snapshot.faults == ()


def test_a_replay_begins_again_after_its_end(
    quick_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "HOLD_SECONDS", 0.05)
    feed = Feed("trace")
    last = folded(quick_trace).step
    with running(play_trace, feed, quick_trace):
        wait_for(lambda: at_end(feed), what="the replay's end")
        wait_for(lambda: feed.snapshot().step < last, what="the replay's second beginning")
        wait_for(lambda: at_end(feed), what="the replay's second end")
        assert len(feed.history(10_000)) <= last


def test_history_has_the_composition_of_each_step(quick_trace: Path) -> None:
    feed = Feed("trace")
    rows = []
    with TraceReader(quick_trace) as reader:
        feed.begin(reader.header)
        state = PoolState(reader.header)
        for record in reader:
            feed.apply(record)
            state.apply(record)
            if isinstance(record, Step):
                active, shared = state.active_blocks, state.shared_blocks
                rows.append([state.free_blocks, active - shared, state.cached_blocks, shared])
    points = feed.history(len(rows))
    assert points[["free", "used", "cached", "shared"]].to_numpy().tolist() == rows
    assert points["segment"].nunique() == 1


def test_the_ticker_tells_each_preemption_with_its_true_numbers(quick_trace: Path) -> None:
    feed, expected = Feed("trace"), []
    with TraceReader(quick_trace) as reader:
        feed.begin(reader.header)
        for record in reader:
            feed.apply(record)
            if isinstance(record, Step):
                expected += [event for event in record.events if isinstance(event, Preempt)]
    told = lines_of(feed, LineKind.PREEMPTED)
    assert expected
    for text, event in zip(told, reversed(expected), strict=False):
        assert f"sequence {event.sequence} " in text
        assert f"{event.blocks_released} block" in text
        assert f"{event.tokens_lost} token" in text


def test_finished_requests_keep_the_latencies_of_their_events(quick_trace: Path) -> None:
    feed, finished = Feed("trace"), []
    with TraceReader(quick_trace) as reader:
        feed.begin(reader.header)
        for record in reader:
            feed.apply(record)
            if isinstance(record, Step):
                finished += [event for event in record.events if isinstance(event, RequestFinished)]
    ended = feed.snapshot().ended
    assert len(ended) == min(50, len(finished))
    for row, event in zip(ended, reversed(finished), strict=False):
        assert row.request == event.request
        assert row.duration_seconds == event.duration_seconds
        assert row.first_token_seconds == event.first_token_seconds
        assert row.prompt_tokens is not None


def test_a_cut_off_trace_plays_to_its_last_record_and_says_so(
    quick_trace: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.jsonl.zst"
    data = quick_trace.read_bytes()
    cut.write_bytes(data[: len(data) * 2 // 3])
    expected = folded(cut)
    assert 0 < expected.step < folded(quick_trace).step
    feed = Feed("trace")
    with running(play_trace, feed, cut):
        wait_for(lambda: at_end(feed), what="the replay's end")
        assert feed.read(PoolState.keyframe) == expected.keyframe()
        snapshot = feed.snapshot()
    assert "cut off" in snapshot.status.warning
    assert any("cut off" in line for line in lines_of(feed, LineKind.MISSING))


def write_trace_with_gap(path: Path, end_with_gap: bool) -> None:
    engine = SimulatedEngine(48, seed=3, step_seconds=0.001)
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    writer = TraceWriter(path, engine.header, empty_keyframe())
    for number in range(60):
        step = engine.step()
        state.apply(step)
        if not 20 <= number < 35:
            writer.write(encode(step))
        if number == 34:
            writer.write(encode(Gap(19, 15, "recorder was full")))
            if end_with_gap:
                break
            writer.write_keyframe(state.keyframe())
    writer.close()


def test_a_gap_in_a_trace_is_told_and_breaks_the_history(tmp_path: Path) -> None:
    path = tmp_path / "gap.jsonl.zst"
    write_trace_with_gap(path, end_with_gap=False)
    feed = Feed("trace")
    with running(play_trace, feed, path):
        wait_for(lambda: at_end(feed), what="the replay's end")
        points = feed.history(100)
    assert lines_of(feed, LineKind.MISSING) == ["15 step records missing here: recorder was full"]
    assert points["segment"].nunique() == 2
    assert not set(range(21, 36)) & set(points["step"])


def test_after_a_gap_nothing_is_shown_as_now(tmp_path: Path) -> None:
    path = tmp_path / "gap.jsonl.zst"
    write_trace_with_gap(path, end_with_gap=True)
    feed = Feed("trace")
    with running(play_trace, feed, path):
        wait_for(lambda: feed.status.phase is Phase.GAP, what="the gap")
        snapshot = feed.snapshot()
        assert snapshot.figures is None
        assert snapshot.unfinished == ()
        assert feed.inspect(0) is None
        assert "15 step records are missing" in snapshot.status.text


def test_a_trace_that_contradicts_itself_is_said_to(tmp_path: Path) -> None:
    path = tmp_path / "wrong.jsonl.zst"
    engine = SimulatedEngine(48, seed=3, step_seconds=0.001)
    writer = TraceWriter(path, engine.header, empty_keyframe())
    for number in range(10):
        step = engine.step()
        if number != 5:
            writer.write(encode(step))
    writer.close()
    feed = Feed("trace")
    with running(play_trace, feed, path):
        wait_for(lambda: feed.status.phase is Phase.GAP, what="the contradiction")
        assert "contradicts itself" in feed.status.text
        assert feed.snapshot().figures is None


def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a trace")
    feed = Feed("trace")
    play_trace(feed, path, threading.Event())
    assert feed.status.phase is Phase.FAILED
    assert "notes.txt" in feed.status.text


def test_what_the_source_does_not_know_is_unknown_and_not_zero() -> None:
    feed = Feed("trace")
    feed.begin(header(8, knows=["physical_blocks"]))
    feed.apply(empty_keyframe())
    figures = feed.snapshot().figures
    assert figures is None, "before the pump says that the state is now"
    assert feed.inspect(0)["filled"] is None
    assert feed.inspect(0)["ref_count"] is None


# -- live -----------------------------------------------------------------------------------------


def follows(feed: Feed, seq: int) -> bool:
    return feed.status.phase is Phase.LIVE and feed.snapshot().seq == seq


def test_a_live_feed_follows_the_engine_and_equals_its_state() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        engine.step(20)
        feed = Feed(engine.url)
        with running(follow_engine, feed, parse_source(engine.url)):
            wait_for(lambda: follows(feed, 19), what="the first keyframe")
            engine.step(60)
            wait_for(lambda: follows(feed, 79), what="the steps")
            assert feed.read(PoolState.keyframe) == engine.state.keyframe()


def test_a_gap_in_the_stream_is_told_and_the_keyframe_goes_on() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        feed = Feed(engine.url)
        with running(follow_engine, feed, parse_source(engine.url)):
            wait_for(lambda: follows(feed, -1), what="the first keyframe")
            engine.step(5)
            engine.step_unseen(7, "the client was slow")
            engine.step(3)
            wait_for(lambda: follows(feed, 14), what="the steps after the gap")
            assert feed.read(PoolState.keyframe) == engine.state.keyframe()
            assert engine.connections == 1
        texts = lines_of(feed, LineKind.MISSING)
        assert texts == ["7 step records missing here: the client was slow"]
        assert feed.history(100)["segment"].nunique() == 2


def test_a_lost_connection_is_said_and_made_anew() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        feed, phases = Feed(engine.url), []
        say = feed.say
        feed.say = lambda status: (phases.append(status.phase), say(status))
        with running(follow_engine, feed, parse_source(engine.url)):
            wait_for(lambda: follows(feed, -1), what="the first keyframe")
            engine.step(10)
            engine.drop_connections()
            wait_for(lambda: Phase.LOST in phases, what="the loss")
            engine.step(10)
            wait_for(lambda: follows(feed, 19), what="the new connection")
            assert feed.read(PoolState.keyframe) == engine.state.keyframe()


def test_an_engine_that_restarted_begins_a_new_past() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        feed = Feed(engine.url)
        with running(follow_engine, feed, parse_source(engine.url)):
            engine.step(40)
            wait_for(lambda: follows(feed, 39), what="the steps")
            engine.restart(SimulatedEngine(80, seed=4))
            wait_for(
                lambda: follows(feed, -1) and feed.header.num_blocks == 80, what="the new engine"
            )
            engine.step(4)
            wait_for(lambda: follows(feed, 3), what="the new engine's steps")
            assert feed.history(100)["step"].tolist() == [1, 2, 3, 4]


def test_a_stream_with_a_silent_hole_is_refused_and_read_anew() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        feed = Feed(engine.url)
        with running(follow_engine, feed, parse_source(engine.url)):
            wait_for(lambda: follows(feed, -1), what="the first keyframe")
            engine.step(2)
            engine.send_step_out_of_order()
            wait_for(lambda: engine.connections == 2, what="a second connection")
            wait_for(lambda: follows(feed, 3), what="the state after it")
            assert feed.read(PoolState.keyframe) == engine.state.keyframe()
        assert any("contradicts itself" in line for line in lines_of(feed, LineKind.MISSING))


def test_an_engine_that_does_not_answer_is_named_and_no_number_is_shown() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        url = engine.url
    address = parse_source(url).name
    feed = Feed(url)
    with running(follow_engine, feed, parse_source(url)):
        wait_for(lambda: feed.status.phase is Phase.LOST, what="the refusal")
        snapshot = feed.snapshot()
        assert address in snapshot.status.text
        assert snapshot.figures is None


# -- what a browser is told ---------------------------------------------------------------------


def test_a_viewer_without_news_is_told_nothing() -> None:
    feed = Feed("trace")
    feed.begin(header(8))
    feed.apply(empty_keyframe())
    viewer = Viewer(feed)
    assert viewer.behind
    assert [type(message) for message in viewer.news()] == [str, bytes]
    assert not viewer.behind
    assert viewer.news() == []


def test_a_keyframe_inside_a_trace_sends_no_cell_again(small_trace: Path) -> None:
    feed = Feed("trace")
    viewer = Viewer(feed)
    sizes = []
    with TraceReader(small_trace) as reader:
        feed.begin(reader.header)
        for record in reader:
            feed.apply(record)
            frames = [message for message in viewer.news() if isinstance(message, bytes)]
            if isinstance(record, Keyframe):
                sizes.append(sum(len(frame) for frame in frames))
    assert sizes[0] > 48 * 4
    assert sizes[1:] == [0] * (len(sizes) - 1)
    assert len(sizes) > 1
