"""SIGTERM: running requests end, viewers see it, new requests are refused; a second one ends at once."""

import concurrent.futures
import signal
import time

import httpx
import pytest

from engine.events import TraceReader
from engine.events.records import RequestFinished, Step
from tests.servers import EngineServer, wait_until
from tests.service.clients import StreamReader

LONG = {"max_tokens": 2000, "ignore_eos": True}


def start(*options: str) -> EngineServer:
    return EngineServer("--model", "none", *options)


def outcomes(path) -> list[str]:
    with TraceReader(path) as trace:
        events = [e for record in trace if isinstance(record, Step) for e in record.events]
        assert trace.cut_off is None, "the recording was closed"
    return [str(e.reason) for e in events if isinstance(e, RequestFinished)]


def runs(server: EngineServer) -> bool:
    return httpx.get(f"{server.url}/v1/pool").json()["active"] > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_request_ends_and_new_ones_are_refused(tmp_path, number):
    path = tmp_path / "run.jsonl.zst"
    with start("--record", str(path)) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        kept = httpx.Client(base_url=server.url)
        running = pool.submit(server.complete, "Hello", max_tokens=300, ignore_eos=True)
        wait_until(lambda: runs(server), what="the request runs")
        kept.get("/health")
        with StreamReader(server.events_url) as viewer:
            server.popen.send_signal(number)
            wait_until(lambda: "stopping: 1 unfinished" in server.output, what="it drains")
            refused = kept.post("/v1/completions", json={"prompt": "x"})
            assert refused.status_code == 503
            assert "shutting down" in refused.json()["error"]["message"]
            viewer.read_until_idle()
        assert running.result().json()["usage"]["completion_tokens"] == 300
        assert server.popen.wait(15) == 0
    assert outcomes(path) == ["length"]


@pytest.mark.parametrize("stream", [False, True])
def test_after_the_timeout_what_is_left_is_aborted_and_told_so(tmp_path, stream):
    path = tmp_path / "run.jsonl.zst"
    options = ("--record", str(path), "--shutdown-timeout", "0.2")
    with start(*options) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.complete, "Hello", stream=stream, **LONG)
        wait_until(lambda: runs(server), what="the request runs")
        with StreamReader(server.events_url) as viewer:
            viewer.read()
            server.popen.send_signal(signal.SIGTERM)
            assert viewer.read_until_idle().totals.requests_finished == {"abort": 1}
        assert server.popen.wait(20) == 0
        server._reader.join(10)
        answer = running.result()
    if stream:
        *_, error, done = answer.text.strip().split("\n\n")
        assert "aborted" in error
        assert done == "data: [DONE]"
    else:
        assert answer.status_code == 503
        assert "aborted" in answer.json()["error"]["message"]
    assert "stopped with 1 unfinished requests: aborted" in server.output
    assert outcomes(path) == ["abort"]


def test_a_second_signal_stops_at_once(tmp_path):
    path = tmp_path / "run.jsonl.zst"
    with start("--record", str(path)) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.complete, "Hello", **LONG)
        wait_until(lambda: runs(server), what="the request runs")
        server.popen.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping:" in server.output, what="it drains")
        assert not running.done()
        assert server.stop(seconds=10) == 0
        # Answered with an abort, or cut off: it was told to be quick.
        assert running.exception() is not None or running.result().status_code == 503
    assert "Traceback" not in server.output
    assert outcomes(path) == ["abort"]


def test_an_idle_server_stops_without_waiting():
    with start() as server:
        assert server.stop(seconds=10) == 0
    assert "stopping" not in server.output


@pytest.mark.parametrize("pause", [0, 0.02, 0.1, 0.2, 0.35, 0.5])
def test_a_second_signal_at_any_moment_leaves_no_traceback_and_a_clean_exit(pause):
    """As from a terminal, whose Ctrl-C is followed by the SIGTERM of whoever started the server."""
    with (
        start("--shutdown-timeout", "0") as server,
        concurrent.futures.ThreadPoolExecutor(2) as pool,
    ):
        for stream in (False, True):
            pool.submit(server.complete, "Hello", stream=stream, **LONG)
        wait_until(lambda: runs(server), what="the requests run")
        with StreamReader(server.events_url) as viewer:
            viewer.read()
            server.popen.send_signal(signal.SIGINT)
            time.sleep(pause)
            assert server.stop(seconds=15) == 0
    assert "Traceback" not in server.output
