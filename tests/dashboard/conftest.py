"""Traces for the dashboard's tests, made from the record types alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st

from dashboard.feed import Phase
from dashboard.feeds import close_feeds, feed_of
from dashboard.source import SOURCE_VARIABLE, parse_source
from tests.dashboard.simulated import SimulatedEngine, write_trace
from tests.dashboard.waiting import wait_for


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 steps on 48 blocks with forks, copies, evictions, preemptions and finished requests."""
    path = tmp_path_factory.mktemp("traces") / "small.jsonl.zst"
    engine = SimulatedEngine(48, seed=3, max_running=8)
    return write_trace(path, engine, steps=200, keyframe_every=70)


@pytest.fixture
def watched(small_trace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The small trace as the one source of this process's dashboard, read to its end."""
    st.cache_resource.clear()
    monkeypatch.setenv(SOURCE_VARIABLE, str(small_trace))
    feed = feed_of(parse_source(str(small_trace)))
    wait_for(lambda: feed.status.phase is Phase.RECORDED, what="the end of the reading")
    yield small_trace
    close_feeds()
    st.cache_resource.clear()
