"""What is recorded is what happened: through crashes, full disks, rotation and a recorder that lags."""

import asyncio
import concurrent.futures
import signal
import time
from pathlib import Path

import httpx
import pytest

from engine.core.config import ConfigError, SamplingParams
from engine.core.sequence import Request
from engine.events import TraceReader, check_state
from engine.events.records import Gap, Keyframe, Step
from engine.events.trace import KeyframePolicy
from engine.service.engine_thread import EngineThread
from engine.service.event_log import EventLog
from engine.service.recorder import SECONDS_BETWEEN_FLUSHES, Recording
from engine.service.server import build_context
from engine.service.settings import ServeSettings
from tests.core.driver import Driver, config, header, sorted_rows
from tests.servers import EngineServer, wait_until
from tests.service.clients import StreamReader


def folded(path):
    """The state at the end of a trace whose every state keeps the books, and its records."""
    records = []
    with TraceReader(path) as trace:
        for record, state in trace.fold():
            records.append(record)
            if state.complete:
                assert check_state(state) == []
        return state, records, trace.cut_off


def run_requests(thread: EngineThread, count: int, tokens: int) -> None:
    """Run `count` requests one after the other in a started engine thread."""
    for number in range(count):
        params = SamplingParams(max_tokens=tokens, ignore_eos=True)
        request = Request(f"r{number}", [1, 2, 3], params, 0.0)
        thread.add([request]).result(10)
        wait_until(lambda request=request: request.finish_reason is not None, 20)


@pytest.fixture
def recorded(tmp_path):
    """A model-free engine thread that records, before its start."""
    driver = Driver(config(num_blocks=32, max_model_len=128))
    log = EventLog()
    thread = EngineThread(driver.engine, log)
    return driver, log, thread, tmp_path / "run.jsonl.zst"


def test_a_recording_ends_as_the_engine_ended(recorded):
    driver, _, thread, path = recorded
    thread.record(Recording(path), header(driver.config))
    thread.start(asyncio.new_event_loop())
    run_requests(thread, 5, 40)
    live = thread.snapshot().result().keyframe()
    thread.stop()
    state, records, cut_off = folded(path)
    assert cut_off is None
    assert [r.seq for r in records if isinstance(r, Step)] == list(range(live.seq + 1))
    assert sorted_rows(state.keyframe()) == sorted_rows(live)


def test_keyframes_come_as_the_policy_says_and_equal_the_fold(recorded, monkeypatch):
    driver, _, thread, path = recorded
    monkeypatch.setattr("engine.events.trace.EVENTS_PER_KEYFRAME", 40)
    monkeypatch.setattr("engine.service.recorder.SECONDS_BETWEEN_READS", 0.001)
    thread.record(Recording(path), header(driver.config))
    thread.start(asyncio.new_event_loop())
    run_requests(thread, 30, 20)
    thread.stop()
    with TraceReader(path) as trace:
        frames = 0
        before = None
        for record, state in trace.fold():
            if isinstance(record, Keyframe) and before is not None:
                frames += 1
                assert record.seq == before.seq
                assert sorted_rows(record) == sorted_rows(before)
            before = state.keyframe()
    assert frames >= 2


def test_a_recorder_that_lags_says_what_is_missing_and_goes_on(recorded):
    driver, _, _, path = recorded
    log = EventLog(size=8)
    thread = EngineThread(driver.engine, log)
    thread.record(Recording(path), header(driver.config))
    recorder = thread.recorder
    # The log runs over before the recorder's first look at it.
    driver.add([1, 2, 3], max_tokens=30)
    while driver.engine.has_work:
        driver.engine.step()
    thread.start(asyncio.new_event_loop())
    wait_until(lambda: recorder.lost > 0, 10)
    run_requests(thread, 1, 4)
    live = thread.snapshot().result().keyframe()
    thread.stop()
    state, records, _ = folded(path)
    gaps = [record for record in records if isinstance(record, Gap)]
    steps = sum(isinstance(record, Step) for record in records)
    assert gaps
    assert steps + sum(gap.count for gap in gaps) == live.seq + 1
    assert recorder.lost == sum(gap.count for gap in gaps)
    assert sorted_rows(state.keyframe()) == sorted_rows(live)


def test_a_recording_that_grows_too_large_goes_on_in_another_whole_trace(recorded, monkeypatch):
    driver, _, thread, path = recorded
    monkeypatch.setattr("engine.service.recorder.SECONDS_BETWEEN_FLUSHES", 0.0)
    monkeypatch.setattr("engine.service.recorder.SECONDS_BETWEEN_READS", 0.01)
    thread.record(Recording(path, max_bytes=3000), header(driver.config))
    thread.start(asyncio.new_event_loop())
    second, third = (path.with_name(f"run.{number}.jsonl.zst") for number in (2, 3))
    number = 0
    deadline = time.monotonic() + 60
    while not third.exists():
        assert time.monotonic() < deadline
        run_requests(thread, 1, 10 + number % 7)
        number += 1
    live = thread.snapshot().result().keyframe()
    thread.stop()
    seqs = []
    for file in (path, second, third):
        _, records, cut_off = folded(file)
        assert cut_off is None
        assert isinstance(records[0], Keyframe)
        seqs += [r.seq for r in records if isinstance(r, Step)]
        assert path.stat().st_size < 20_000
    parts = sorted(path.parent.glob("run.*.jsonl.zst"))
    assert seqs[: live.seq + 1] == list(range(len(seqs)))
    assert len(parts) >= 2


def test_a_killed_server_loses_no_more_than_was_not_flushed(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    with (
        EngineServer("--model", "none", "--record", str(path)) as server,
        StreamReader(server.events_url) as reader,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        reader.read()
        asked = pool.submit(server.complete, "x" * 100, max_tokens=3000, ignore_eos=True)
        reader.read()
        started = time.monotonic()
        while time.monotonic() - started < 3 * SECONDS_BETWEEN_FLUSHES:
            newest = reader.read().time
        assert not asked.done(), "it is killed in the middle"
        server.popen.send_signal(signal.SIGKILL)
        server.popen.wait(10)
        assert isinstance(asked.exception(), httpx.TransportError)
    _, records, cut_off = folded(path)
    steps = [record for record in records if isinstance(record, Step)]
    assert "was cut off" in cut_off
    assert [record.seq for record in steps] == list(range(len(steps)))
    # A flush a second, and what the recorder had not read yet; generous on a busy machine.
    assert steps[-1].time > newest - 4 * SECONDS_BETWEEN_FLUSHES
    assert len(steps) > 10


def test_with_fsync_each_flush_waits_for_the_disk(recorded, monkeypatch):
    driver, _, thread, path = recorded
    synced = []
    monkeypatch.setattr("engine.events.trace.os.fsync", synced.append)
    thread.record(Recording(path), header(driver.config))
    assert synced == []
    thread.recorder._writer.close()
    thread.record(Recording(path, fsync=True), header(driver.config))
    assert len(synced) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_said_at_the_start(tmp_path):
    (tmp_path / "run.jsonl.zst").symlink_to("/dev/full")
    with pytest.raises(ConfigError, match=r"can't record to .*No space left"):
        build_context(ServeSettings("none", record=tmp_path / "run.jsonl.zst"))


def test_a_disk_that_fills_later_ends_the_recording_and_nothing_else(recorded, caplog):
    driver, _, thread, path = recorded
    thread.record(Recording(path), header(driver.config))

    def no_space(line: bytes) -> None:
        raise OSError(28, "No space left on device")

    thread.recorder._writer.write = no_space
    thread.start(asyncio.new_event_loop())
    run_requests(thread, 2, 10)
    thread.stop()
    assert f"recording to {path} ended: No space left on device" in caplog.text


def test_the_policy_counts_from_the_last_keyframe():
    policy = KeyframePolicy(10)
    assert not policy.due
    policy.count(20_000)
    assert policy.due
    policy.restart()
    assert not policy.due


def test_without_events_nothing_is_told_and_texts_are_the_same(tiny_model):

    options = ("--model", str(tiny_model), "--num-gpu-blocks-override", "24")
    ask = {"max_tokens": 30, "temperature": 0, "ignore_eos": True, "n": 2}
    with EngineServer(*options, "--no-events") as server:
        quiet = server.complete("Hello", **ask).json()["choices"]
        for path in ("/metrics", "/v1/pool", "/v1/events"):
            assert httpx.get(server.url + path).status_code == 404
        assert "no events" in server.output
    with EngineServer(*options) as server:
        assert server.complete("Hello", **ask).json()["choices"] == quiet
    with pytest.raises(ConfigError, match="nothing to record"):
        build_context(ServeSettings("none", record=tiny_model / "x.jsonl.zst", events=False))
