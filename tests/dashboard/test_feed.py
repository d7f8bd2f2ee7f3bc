"""The feed: what it shows equals a direct fold, and what is missing is said."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboard.feed import Feed, Phase, Status
from dashboard.journal import LineKind
from dashboard.live import follow_engine
from dashboard.replay import read_trace
from dashboard.source import parse_source
from engine.events import PoolState, TraceWriter, encode
from engine.events.records import Gap, Preempt, RequestFinished
from tests.dashboard.fake_engine import fake_engine
from tests.dashboard.folding import folded, steps_of
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe
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


def read(path: Path) -> Feed:
    """A feed with the whole of a trace."""
    feed = Feed(path.name, live=False)
    read_trace(feed, path, threading.Event())
    return feed


def lines_of(feed: Feed, kind: LineKind) -> list[str]:
    return [line.text for line in feed.lines(10_000) if line.kind is kind]


def test_a_trace_that_was_read_is_in_the_state_of_a_direct_fold(small_trace: Path) -> None:
    feed = read(small_trace)
    assert feed.scene.read(PoolState.keyframe) == folded(small_trace).keyframe()
    assert feed.past.state_at(99).keyframe() == folded(small_trace, 99).keyframe()
    assert feed.status.phase is Phase.RECORDED
    assert feed.status.warning is None


def test_a_trace_that_is_being_read_tells_how_far(small_trace: Path) -> None:
    told: list[str] = []

    class Listening(Feed):
        def say(self, status: Status) -> None:
            told.append(status.text)
            super().say(status)

    read_trace(Listening("trace", live=False), small_trace, threading.Event())
    shares = [int(found[1]) for text in told if (found := re.search(r": (\d+) %, ", text))]
    assert shares == sorted(shares)
    assert shares
    assert 0 < shares[0] <= shares[-1] <= 100


def test_history_has_the_composition_and_the_counts_of_each_record(small_trace: Path) -> None:
    feed = read(small_trace)
    state = folded(small_trace, -1)
    for row, step in zip(feed.history.rows(), steps_of(small_trace), strict=True):
        state.apply(step)
        active, shared = state.active_blocks, state.shared_blocks
        assert (row["free"], row["used"], row["cached"], row["shared"]) == (
            state.free_blocks,
            active - shared,
            state.cached_blocks,
            shared,
        )
        assert (row["seq"], row["slots_filled"]) == (step.seq, state.slots_filled)
        assert row["preemptions"] == sum(isinstance(e, Preempt) for e in step.events)
        assert row["recompute"] == step.tokens.recompute


def test_the_ticker_tells_each_preemption_with_its_true_numbers(small_trace: Path) -> None:
    feed, expected, request_of = read(small_trace), [], {}
    for step in steps_of(small_trace):
        for event in step.events:
            if hasattr(event, "prompt_tokens"):
                request_of[event.sequence] = event.request
            if hasattr(event, "child"):
                request_of[event.child] = request_of[event.parent]
            if isinstance(event, Preempt):
                expected.append((step.seq, event))
    told = [line for line in feed.lines(10_000) if line.kind is LineKind.PREEMPTED]
    assert len(told) == len(expected) > 3
    for line, (seq, event) in zip(told, reversed(expected), strict=True):
        assert line.seq == seq
        assert f"request {request_of[event.sequence]}" in line.text
        assert f"request {request_of[event.victim_of]}" in line.text
        assert f"{event.blocks_released} block" in line.text
        assert f"{event.tokens_lost} token" in line.text


def test_finished_requests_keep_the_latencies_of_their_events(small_trace: Path) -> None:
    feed = read(small_trace)
    finished = [
        event
        for step in steps_of(small_trace)
        for event in step.events
        if isinstance(event, RequestFinished)
    ]
    ended = feed.ended(10_000)
    assert len(ended) == len(finished)
    for row, event in zip(ended, reversed(finished), strict=True):
        assert row.request == event.request
        assert row.duration_seconds == event.duration_seconds
        assert row.first_token_seconds == event.first_token_seconds
        assert row.prompt_tokens is not None


def test_a_cut_off_trace_is_read_to_its_last_record_and_says_so(
    small_trace: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.jsonl.zst"
    data = small_trace.read_bytes()
    cut.write_bytes(data[: len(data) * 2 // 3])
    expected = folded(cut)
    assert 0 < expected.step < folded(small_trace).step
    feed = read(cut)
    assert feed.scene.read(PoolState.keyframe) == expected.keyframe()
    assert "cut off" in feed.status.warning
    assert any("cut off" in line for line in lines_of(feed, LineKind.MISSING))


def test_a_gap_in_a_trace_is_told_and_breaks_the_history(tmp_path: Path) -> None:
    path = tmp_path / "gap.jsonl.zst"
    engine = SimulatedEngine(48, seed=3)
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
            writer.write_keyframe(state.keyframe())
    writer.close()
    feed = read(path)
    assert lines_of(feed, LineKind.MISSING) == ["15 step records missing here: recorder was full"]
    rows = feed.history.rows()
    assert len(set(rows["segment"].tolist())) == 2
    assert not set(range(20, 35)) & set(rows["seq"].tolist())
    assert feed.past.nearest(25) == 19
    assert feed.scene.read(PoolState.keyframe) == state.keyframe()


def test_a_trace_that_contradicts_itself_is_said_to(tmp_path: Path) -> None:
    path = tmp_path / "wrong.jsonl.zst"
    engine = SimulatedEngine(48, seed=3)
    writer = TraceWriter(path, engine.header, empty_keyframe())
    for number in range(10):
        step = engine.step()
        if number != 5:
            writer.write(encode(step))
    writer.close()
    feed = read(path)
    assert "contradicts itself" in feed.status.warning
    assert feed.past.last_seq == 4
    assert any("contradicts itself" in line for line in lines_of(feed, LineKind.MISSING))


def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a trace")
    feed = read(path)
    assert feed.status.phase is Phase.FAILED
    assert "notes.txt" in feed.status.text


# -- live -----------------------------------------------------------------------------------------


def follows(feed: Feed, seq: int) -> bool:
    return feed.status.phase is Phase.LIVE and feed.scene.seq == seq


def live_feed(url: str) -> Feed:
    return Feed(url, live=True)


def test_a_live_feed_follows_the_engine_and_its_past_equals_the_engines() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        engine.step(20)
        feed = live_feed(engine.url)
        with running(follow_engine, feed, parse_source(engine.url)):
            wait_for(lambda: follows(feed, 19), what="the first keyframe")
            middle = engine.state.keyframe()
            engine.step(60)
            wait_for(lambda: follows(feed, 79), what="the steps")
            assert feed.scene.read(PoolState.keyframe) == engine.state.keyframe()
            assert feed.past.state_at(19).keyframe() == middle
            assert (feed.past.first_seq, feed.past.last_seq) == (19, 79)


def test_a_gap_in_the_stream_is_told_and_the_keyframe_goes_on() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        feed = live_feed(engine.url)
        with running(follow_engine, feed, parse_source(engine.url)):
            wait_for(lambda: follows(feed, -1), what="the first keyframe")
            engine.step(5)
            engine.step_unseen(7, "the client was slow")
            engine.step(3)
            wait_for(lambda: follows(feed, 14), what="the steps after the gap")
            assert feed.scene.read(PoolState.keyframe) == engine.state.keyframe()
            assert engine.connections == 1
        texts = lines_of(feed, LineKind.MISSING)
        assert texts == ["7 step records missing here: the client was slow"]
        assert len(set(feed.history.rows()["segment"].tolist())) == 2
        assert feed.past.nearest(8) == 4


def test_a_lost_connection_is_said_and_made_anew() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        feed, phases = live_feed(engine.url), []
        say = feed.say
        feed.say = lambda status: (phases.append(status.phase), say(status))
        with running(follow_engine, feed, parse_source(engine.url)):
            wait_for(lambda: follows(feed, -1), what="the first keyframe")
            engine.step(10)
            engine.drop_connections()
            wait_for(lambda: Phase.LOST in phases, what="the loss")
            engine.step(10)
            wait_for(lambda: follows(feed, 19), what="the new connection")
            assert feed.scene.read(PoolState.keyframe) == engine.state.keyframe()


def test_an_engine_that_restarted_begins_a_new_past() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        feed = live_feed(engine.url)
        with running(follow_engine, feed, parse_source(engine.url)):
            engine.step(40)
            wait_for(lambda: follows(feed, 39), what="the steps")
            before = feed.generation
            engine.restart(SimulatedEngine(80, seed=4))
            wait_for(
                lambda: follows(feed, -1) and feed.header.num_blocks == 80, what="the new engine"
            )
            engine.step(4)
            wait_for(lambda: follows(feed, 3), what="the new engine's steps")
            assert feed.history.rows()["step"].tolist() == [1, 2, 3, 4]
            assert feed.past.last_seq == 3
            assert feed.generation > before


def test_a_stream_with_a_silent_hole_is_refused_and_read_anew() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        feed = live_feed(engine.url)
        with running(follow_engine, feed, parse_source(engine.url)):
            wait_for(lambda: follows(feed, -1), what="the first keyframe")
            engine.step(2)
            engine.send_step_out_of_order()
            wait_for(lambda: engine.connections == 2, what="a second connection")
            wait_for(lambda: follows(feed, 3), what="the state after it")
            assert feed.scene.read(PoolState.keyframe) == engine.state.keyframe()
        assert any("contradicts itself" in line for line in lines_of(feed, LineKind.MISSING))


def test_an_engine_that_does_not_answer_is_named() -> None:
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        url = engine.url
    address = parse_source(url).name
    feed = live_feed(url)
    with running(follow_engine, feed, parse_source(url)):
        wait_for(lambda: feed.status.phase is Phase.LOST, what="the refusal")
        assert address in feed.status.text
        assert not feed.status.current
