"""The command line: bad input is one clear line and exit code 1, before anything is started."""

import signal
import socket

import pytest
import pyzstd

from tests.conftest import needs
from tests.servers import EngineServer, Process, wait_until


def run(*args: str) -> tuple[int, str]:
    process = Process(*args, HF_HUB_OFFLINE="1")
    code = process.popen.wait(120)
    process._reader.join(10)
    return code, process.output


def one_line(output: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith("glasspool: ")]
    assert "Traceback" not in output
    return line


@pytest.fixture
def taken_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield str(other.getsockname()[1])


def test_an_unknown_model_is_named():
    code, output = run("serve", "--port", "0", "--model", "no-such-model")
    assert code == 1
    assert "no-such-model can't be loaded" in one_line(output)


def test_sizes_that_cannot_work_are_refused(tiny_model):
    code, output = run("serve", "--port", "0", "--model", str(tiny_model), "--block-size", "0")
    assert code == 1
    assert "block_size is 0" in one_line(output)


@pytest.mark.parametrize("option", ["--port", "--dashboard-port"])
def test_a_taken_port_is_named_with_the_option_that_chooses_another(taken_port, option):
    code, output = run("demo", option, taken_port)
    assert code == 1
    assert f"port {taken_port} on 127.0.0.1" in one_line(output)
    assert option in one_line(output)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (["--trace", "no-such.jsonl.zst"], "no-such.jsonl.zst: No such file"),
        (["--engine", "localhost"], "localhost is no engine's address"),
        (
            ["--engine", "http://127.0.0.1:1", "--engine", "ftp://x"],
            "ftp://x is no engine's address",
        ),
        (["--engine", "http://127.0.0.1:1", "--trace", "x.zst"], "x.zst: No such file"),
    ],
)
def test_a_dashboard_refuses_a_source_that_cannot_be(source, words):
    code, output = run("dashboard", *source)
    assert code == 1
    assert words in one_line(output)


@pytest.mark.parametrize("content", [b"no trace", b"", pyzstd.compress(b"{}\n")])
def test_a_dashboard_refuses_a_file_that_is_no_trace(tmp_path, content):
    path = tmp_path / "other.jsonl.zst"
    path.write_bytes(content)
    code, output = run("dashboard", "--trace", str(path))
    assert code == 1
    assert "other.jsonl.zst" in one_line(output)
    assert "Glasspool" in one_line(output)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_stops_at_a_signal_and_closes_its_recording(tiny_model, tmp_path, number):
    from engine.events import TraceReader

    path = tmp_path / "run.jsonl.zst"
    server = EngineServer("--model", str(tiny_model), "--record", str(path))
    assert server.complete("Hello", max_tokens=4).status_code == 200
    server.stop(number)
    assert "Traceback" not in server.output
    with TraceReader(path) as reader:
        assert len(list(reader)) > 4
    assert reader.cut_off is None


def test_after_kill_9_the_recording_reads_up_to_what_was_flushed(tiny_model, tmp_path):
    from engine.events import PoolState, TraceReader

    path = tmp_path / "run.jsonl.zst"
    server = EngineServer("--model", str(tiny_model), "--record", str(path))
    assert server.complete("Hello", max_tokens=30, ignore_eos=True).status_code == 200
    wait_until(lambda: path.stat().st_size > 1000, 10, "the idle engine has flushed")
    server.stop(signal.SIGKILL)
    with TraceReader(path) as reader:
        state = PoolState(reader.header)
        for record in reader:
            state.apply(record)
    assert "cut off" in reader.cut_off
    assert state.totals.steps == 30
    assert state.active_blocks == 0


@needs("make")
def test_the_makefile_names_its_targets():
    import subprocess

    for target in ("demo", "test"):
        plan = subprocess.run(
            ["make", "--dry-run", target], capture_output=True, text=True, check=True
        )
        assert ("glasspool demo" if target == "demo" else "pytest") in plan.stdout
