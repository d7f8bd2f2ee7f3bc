"""What a browser is told: all of one moment, and nothing twice."""

import json
from typing import Any

import numpy as np
import pytest

from dashboard.feed import Feed, Phase, Status
from dashboard.figures import read_figures
from dashboard.pool_socket import encode_cells, take_message
from dashboard.scene import Cells
from dashboard.session import Session
from dashboard.track import track
from dashboard.viewer import Viewer
from engine.events import PoolState
from engine.events.records import Gap, Keyframe
from tests.dashboard.folding import fed
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe, header

STEPS = 150


def recording() -> Feed:
    feed = fed(SimulatedEngine(48, seed=3, max_running=8), STEPS)
    feed.say(Status(Phase.RECORDED, "recorded"))
    return feed


def told(viewer: Viewer) -> dict[str, Any]:
    """The messages of one round by name; cells as such. Everything must be sendable."""
    named: dict[str, Any] = {}
    for message in viewer.news():
        if isinstance(message, Cells):
            assert encode_cells(message)
            named["cells"] = message
        else:
            named |= json.loads(json.dumps(message))
    return named


def test_everything_that_is_told_at_once_is_of_one_moment() -> None:
    session = Session(recording(), seq=100)
    viewer = Viewer(session)
    for seq in (100, 40, 120):
        session.go(seq)
        news = told(viewer)
        assert news["cells"].seq == news["moment"]["seq"] == seq
        assert news["figures"]["step"] == news["moment"]["step"]
        assert max(line["seq"] for line in news["ticker"]) <= seq
        active = int(news["figures"]["groups"][0]["figures"][0]["value"])
        assert active == session.look().scene.state.active_blocks


def test_a_moment_that_stands_still_is_told_once_and_checked_after() -> None:
    session = Session(recording(), seq=100)
    viewer = Viewer(session)
    assert "books" not in told(viewer), "the cells come first"
    assert viewer.behind
    assert set(told(viewer)) == {"books"}
    assert told(viewer) == {}
    assert not viewer.behind
    session.step(1)
    assert viewer.behind


def test_a_seek_sends_only_the_cells_that_differ() -> None:
    session = Session(recording(), seq=100)
    viewer = Viewer(session)
    before = told(viewer)["cells"]
    assert before.blocks is None
    session.step(1)
    after = told(viewer)["cells"]
    assert after.blocks is not None
    assert 0 < len(after.blocks) < 24
    words = before.words.copy()
    words[after.blocks] = after.words
    assert words.tolist() == session.look().scene.grid.words.tolist()


def test_the_flashes_of_a_still_moment_are_those_of_its_record() -> None:
    session = Session(recording(), seq=30)
    viewer = Viewer(session)
    for seq in (30, 90, 60):
        session.go(seq)
        assert {flash[0] for flash in told(viewer)["cells"].flashes} <= {seq}


def test_a_keyframe_inside_a_stream_sends_no_cell_again() -> None:
    engine = SimulatedEngine(48, seed=3, max_running=8)
    feed = fed(engine, 60, live=True)
    feed.say(Status(Phase.LIVE, "live"))
    viewer = Viewer(Session(feed))
    told(viewer)
    keyframe = feed.scene.state.keyframe()
    assert isinstance(keyframe, Keyframe)
    feed.apply(keyframe)
    assert "cells" not in told(viewer)


def test_a_pin_is_told_with_owners_chain_and_history() -> None:
    session = Session(recording(), seq=100)
    state = session.look().scene.state
    sequence = max(state.sequences.values(), key=lambda s: len(s.table))
    block = sequence.table[-1]
    viewer = Viewer(session)
    take_message(session, viewer, json.dumps({"select": {"block": block}}))
    pin = told(viewer)["pin"]
    assert [entry["block"] for entry in pin["chain"]] == sequence.table[:-1]
    assert pin["chain"][0]["hash"] == state.hashes.get(sequence.table[0])
    assert pin["changes"][0]["seq"] == state.last_change[block]
    assert pin["text"] == state.block_text(block)
    take_message(session, viewer, json.dumps({"select": {"block": None}}))
    assert told(viewer)["pin"] is None


def test_a_selected_request_is_told_with_its_blocks() -> None:
    session = Session(recording(), seq=100)
    state = session.look().scene.state
    request = next(iter(state.sequences.values())).request
    viewer = Viewer(session)
    take_message(session, viewer, json.dumps({"select": {"request": request}}))
    blocks = {block for s in state.sequences.values() if s.request == request for block in s.table}
    assert set(told(viewer)["selected"]["blocks"]) == blocks


def test_what_the_source_does_not_know_is_unknown_and_not_zero() -> None:
    feed = Feed("trace", live=False)
    feed.begin(header(8, knows=["physical_blocks"]))
    feed.apply(empty_keyframe())
    feed.say(Status(Phase.RECORDED, "recorded"))
    session = Session(feed, seq=-1)
    viewer = Viewer(session)
    viewer.inspect(0)
    news = told(viewer)
    assert (news["inspect"]["filled"], news["inspect"]["ref_count"]) == (None, None)
    shown = {f["label"]: f["value"] for g in news["figures"]["groups"] for f in g["figures"]}
    assert shown["Free"] == "8"
    for label in ("KV utilisation", "Sharing factor", "Running", "Recompute tax"):
        assert shown[label] == "unknown", label


def test_figures_over_the_last_minute_count_its_records_alone() -> None:
    engine = SimulatedEngine(48, seed=3, max_running=8, step_seconds=1.0)
    feed = fed(engine, STEPS)
    feed.say(Status(Phase.RECORDED, "recorded"))
    rows = feed.history.rows()[100 - 59 : 101]  # 60 seconds end with record 100
    figures = read_figures(Session(feed, seq=100).look(), float(rows["time"][-1]))
    assert figures.preemptions_minute == int(rows["preemptions"].sum())
    assert figures.recomputed_minute == int(rows["recompute"].sum())
    kinds = ("prefill", "decode", "recompute")
    assert figures.computed_minute == sum(int(rows[kind].sum()) for kind in kinds)
    newest = rows[-5:]
    assert figures.tokens_per_second == sum(int(newest[kind].sum()) for kind in kinds) / 5
    assert figures.preemptions_total == int(feed.history.rows(100)["preemptions"].sum())


def test_records_that_are_missing_are_a_banner_for_a_minute_and_not_before() -> None:
    engine = SimulatedEngine(48, seed=3, max_running=8, step_seconds=1.0)
    feed = fed(engine, 50, live=True)
    state = PoolState(engine.header)
    state.apply(feed.scene.state.keyframe())
    for _ in range(10):
        state.apply(engine.step())
    feed.apply(Gap(49, 10, "the client was slow"))
    feed.apply(state.keyframe())
    for _ in range(80):
        feed.apply(engine.step())
    feed.say(Status(Phase.LIVE, "live"))
    banner = {}
    for seq in (40, 65, 100, 139):
        banner[seq] = told(Viewer(Session(feed, seq=seq)))["moment"]["gap"]
    assert banner[40] is None
    assert "before step 61 (10 step records missing here: the client was slow)" in banner[65]
    assert banner[100] is not None
    assert banner[139] is None


@pytest.mark.parametrize(
    "text",
    [
        *("no JSON", "[]", '{"do": "step"}', '{"do": "jump", "to": "x", "forward": true}'),
        *('{"select": 3}', '{"inspect": "a"}', '{"do": ["live"]}', '{"do": "go", "seq": null}'),
    ],
)
def test_messages_that_make_no_sense_are_ignored(text: str) -> None:
    session = Session(recording(), seq=100)
    viewer = Viewer(session)
    take_message(session, viewer, text)
    assert told(viewer)["moment"]["seq"] == 100


def test_the_scrubbers_picture_has_the_shares_and_each_preemption() -> None:
    feed = recording()
    rows = feed.history.rows()
    picture = track(rows, -1, STEPS - 1, 48)
    assert sum(count for _, count in picture["marks"]) == int(rows["preemptions"].sum()) > 0
    mean = float(np.mean((rows["used"] + rows["shared"]) / 48))
    assert np.mean(picture["active"]) == pytest.approx(1000 * mean, abs=5)
    assert picture["holes"] == []
