"""A browser session: where its commands lead, and that what it shows there is the truth."""

import random
from collections.abc import Callable

import pytest

from dashboard.feed import Feed, Phase, Status
from dashboard.session import LONGEST_PAUSE, Session
from dashboard.sessions import IDLE_SECONDS, Sessions
from engine.events import PoolState
from engine.events.records import Gap
from tests.dashboard.folding import fed
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe

STEPS = 150


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def recording(steps: int = STEPS, **more: float) -> Feed:
    feed = fed(SimulatedEngine(48, seed=3, max_running=8, **more), steps)
    feed.say(Status(Phase.RECORDED, "recorded"))
    return feed


def engine_feed(steps: int = STEPS) -> tuple[Feed, SimulatedEngine]:
    engine = SimulatedEngine(48, seed=3, max_running=8)
    feed = fed(engine, steps, live=True)
    feed.say(Status(Phase.LIVE, "live"))
    return feed, engine


def keyframe_at(seq: int) -> object:
    """The state after a record of the same engine, folded from its start."""
    engine = SimulatedEngine(48, seed=3, max_running=8)
    state = PoolState(engine.header)
    state.apply(empty_keyframe())
    while state.seq < seq:
        state.apply(engine.step())
    return state.keyframe()


def test_every_way_to_a_moment_shows_the_same_pool_and_the_same_marks() -> None:
    feed = recording()
    walker = Session(feed, seq=-1)
    walked = {}
    for _ in range(STEPS + 1):
        look = walker.look()
        walked[look.seq] = (look.read(PoolState.keyframe), look.scene.grid.words.tolist())
        walker.step(1)
    jumper = Session(feed, seq=0)
    for seq in random.Random(2).sample(sorted(walked), 60):
        jumper.go(seq)
        look = jumper.look()
        assert look.seq == seq
        assert (look.read(PoolState.keyframe), look.scene.grid.words.tolist()) == walked[seq]
    assert walked[97][0] == keyframe_at(97)


def test_what_lies_behind_a_moment_ends_at_it() -> None:
    session = Session(recording(), seq=60)
    look = session.look()
    assert look.rows["seq"].tolist() == list(range(61))
    assert look.feed.lines(1000, look.upto)
    assert all(line.seq <= 60 for line in look.feed.lines(1000, look.upto))


def test_a_live_session_follows_and_a_rewound_one_stays() -> None:
    feed, engine = engine_feed()
    live, rewound = Session(feed), Session(feed, seq=40)
    assert live.look().seq == STEPS - 1
    before = rewound.look().read(PoolState.keyframe)
    for _ in range(30):
        feed.apply(engine.step())
    assert live.look().seq == STEPS + 29
    assert live.look().live
    assert not rewound.look().live
    assert rewound.look().read(PoolState.keyframe) == before
    assert rewound.look().ago == pytest.approx((STEPS + 29 - 40) * 0.05, abs=1.0)
    rewound.go_live()
    assert rewound.look().seq == STEPS + 29


def test_pausing_live_stands_at_the_newest_record() -> None:
    feed, engine = engine_feed()
    session = Session(feed)
    session.pause()
    feed.apply(engine.step())
    assert session.look().seq == STEPS - 1
    assert not session.look().live


def test_playing_keeps_the_recorded_pace_times_the_speed() -> None:
    clock = Clock()
    session = Session(recording(), seq=10, clock=clock)
    session.look()
    session.play()
    clock.now += 0.5  # ten steps of 0.05 s
    assert session.look().seq in (19, 20)
    session.set_speed(4.0)
    clock.now += 0.5
    assert session.look().seq in (59, 60)
    session.pause()
    clock.now += 5
    assert session.look().seq in (59, 60)


def test_an_idle_stretch_is_cut_short() -> None:
    clock = Clock()
    session = Session(recording(step_seconds=600.0), seq=10, clock=clock)
    session.look()
    session.play()
    clock.now += LONGEST_PAUSE * 0.99
    assert session.look().seq in (10, 11)
    clock.now += LONGEST_PAUSE * 0.99
    assert session.look().seq in (11, 12)


def test_a_recording_opens_playing_from_its_start_and_stops_at_its_end() -> None:
    clock = Clock()
    session = Session(recording(), clock=clock)
    first = session.look()
    assert first.seq in (-1, 0)
    assert first.playing
    for _ in range(20):
        clock.now += 0.9
        last = session.look()
    assert (last.seq, last.playing) == (STEPS - 1, False)
    session.play()
    assert session.look().seq <= 0


def test_playing_up_to_now_becomes_live() -> None:
    clock = Clock()
    feed, _ = engine_feed()
    session = Session(feed, seq=STEPS - 3, clock=clock)
    session.look()
    session.play()
    clock.now += 1.0
    assert session.look().live


@pytest.mark.parametrize("column", ["preemptions", "copies", "evictions"])
def test_a_jump_goes_to_each_event_of_its_kind_and_no_other(column: str) -> None:
    feed = recording()
    rows = feed.history.rows()
    expected = rows["seq"][rows[column] > 0].tolist()
    assert len(expected) > 2
    session = Session(feed, seq=-1)
    session.look()
    visited = []
    while session.jump(column, forward=True):
        visited.append(session.look().seq)
    assert visited == expected
    assert session.look().notice == f"no {column} after this step"
    back = []
    while session.jump(column, forward=False):
        back.append(session.look().seq)
    assert back == expected[-2::-1]


def test_steps_stay_within_what_is_kept() -> None:
    session = Session(recording(), seq=0)
    session.look()
    session.step(-20)
    assert session.look().seq == -1
    session.step(10_000)
    assert session.look().seq == STEPS - 1
    session.go(10**9)
    assert session.look().seq == STEPS - 1


def hole(feed: Feed, engine: SimulatedEngine) -> None:
    """Ten records that never arrive."""
    state = PoolState(engine.header)
    with feed.scene.lock:
        state.apply(feed.scene.state.keyframe())
    for _ in range(10):
        state.apply(engine.step())
    feed.apply(Gap(STEPS - 1, 10, "slow"))
    feed.apply(state.keyframe())


def test_a_step_over_a_hole_lands_behind_it() -> None:
    feed, engine = engine_feed()
    hole(feed, engine)
    for _ in range(10):
        feed.apply(engine.step())
    session = Session(feed, seq=STEPS - 1)
    session.look()
    session.step(1)
    assert session.look().seq == STEPS + 9
    session.step(-1)
    assert session.look().seq == STEPS - 1


def test_a_share_link_into_a_trace_that_is_being_read_waits_for_its_record() -> None:
    engine = SimulatedEngine(48, seed=3, max_running=8)
    feed = fed(engine, 50)
    feed.say(Status(Phase.READING, "reading"))
    session = Session(feed, seq=90)
    assert not session.look().current
    for _ in range(100):
        feed.apply(engine.step())
    assert session.look().seq == 90


def test_another_engine_at_the_same_address_ends_the_old_past() -> None:
    feed, _ = engine_feed()
    session = Session(feed, seq=20)
    assert session.look().seq == 20
    other = SimulatedEngine(80, seed=4)
    feed.begin(other.header)
    feed.apply(empty_keyframe())
    for _ in range(3):
        feed.apply(other.step())
    look = session.look()
    assert look.live
    assert look.seq == 2
    assert look.scene.state.num_blocks == 80
    assert "restarted" in look.notice


def test_nothing_of_an_engine_that_is_gone_is_current_but_its_past_is() -> None:
    feed, _ = engine_feed()
    live, rewound = Session(feed), Session(feed, seq=20)
    feed.say(Status(Phase.LOST, "gone"))
    assert not live.look().current
    assert live.look().read(PoolState.keyframe) is None
    assert rewound.look().current


def test_the_selection_ends_with_the_source_and_not_with_the_moment() -> None:
    feed = recording()
    session = Session(feed)
    session.select(request="req-3", block=7)
    session.select(block=None)
    session.go(5)
    assert (session.selection.request, session.selection.block) == ("req-3", None)
    session.open(recording(10))
    assert session.selection.request is None


def test_a_session_is_kept_while_somebody_asks_and_forgotten_after() -> None:
    clock = Clock()
    registry = Sessions(clock)
    feed = recording(5)
    kept, left = registry.add(Session(feed)), registry.add(Session(feed))
    for _ in range(4):
        clock.now += IDLE_SECONDS * 0.5
        assert registry.get(kept) is not None
    registry.add(Session(feed))
    assert registry.get(left) is None
    assert registry.get(kept) is not None
    assert registry.get("no such token") is None


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.play(),
        lambda s: s.pause(),
        lambda s: s.step(1),
        lambda s: s.jump("copies", True),
        lambda s: s.go_live(),
        lambda s: s.go_to_step(4),
    ],
)
def test_commands_before_the_first_record_do_no_harm(act: Callable[[Session], object]) -> None:
    session = Session(Feed("engine", live=True))
    act(session)
    assert not session.look().current
