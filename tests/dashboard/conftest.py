"""Traces for the dashboard's tests, made from the record types alone."""

from pathlib import Path

import pytest

from tests.dashboard.simulated import SimulatedEngine, write_trace


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 steps on 48 blocks with forks, copies, evictions, preemptions and finished requests."""
    path = tmp_path_factory.mktemp("traces") / "small.jsonl.zst"
    engine = SimulatedEngine(48, seed=3, max_running=8)
    return write_trace(path, engine, steps=200, keyframe_every=70)
