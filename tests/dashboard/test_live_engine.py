"""The dashboard's feed on a real engine: its key, and its heartbeats."""

import pytest

from dashboard.feed import Feed, Phase
from dashboard.live import KEY_VARIABLE, _take, follow_engine
from dashboard.source import parse_source
from engine.events import TraceReader
from engine.events.records import Heartbeat
from tests.dashboard.test_feed import running
from tests.dashboard.waiting import wait_for
from tests.demo_data import OVERVIEW
from tests.servers import EngineServer

KEY = "open-sesame"


@pytest.fixture(scope="module")
def locked():
    with EngineServer("--model", "none", GLASSPOOL_API_KEY=KEY) as server:
        yield server


def test_an_engine_with_a_key_is_watched_with_it(locked, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    feed = Feed(locked.url, live=True)
    with running(follow_engine, feed, parse_source(locked.url)):
        wait_for(lambda: feed.status.phase is Phase.LIVE, what="the engine's state")


@pytest.mark.parametrize("key", [None, "wrong"])
def test_without_the_key_the_remedy_is_said(locked, monkeypatch, key):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    if key:
        monkeypatch.setenv(KEY_VARIABLE, key)
    feed = Feed(locked.url, live=True)
    with running(follow_engine, feed, parse_source(locked.url)):
        wait_for(lambda: feed.status.phase is Phase.LOST, what="the refusal")
        assert KEY_VARIABLE in feed.status.text
        assert KEY not in feed.status.text


def test_heartbeats_of_an_idle_engine_change_nothing():
    feed = Feed("engine", live=True)
    with TraceReader(OVERVIEW) as trace:
        _take(feed, parse_source("http://engine"), trace.header, b"")
        keyframe = next(iter(trace))
        _take(feed, parse_source("http://engine"), keyframe, b"")
    version, arrival = feed.version, feed.last_arrival
    _take(feed, parse_source("http://engine"), Heartbeat(keyframe.seq, 1.0), b"")
    assert (feed.version, feed.last_arrival) == (version, arrival)
    assert feed.status.phase is Phase.LIVE
