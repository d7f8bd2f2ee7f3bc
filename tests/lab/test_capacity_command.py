"""`glasspool capacity` as users run it: figures, JSON, a real engine under load, one-line errors."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpx
import pytest

from engine.capacity_command import engine_state
from engine.core.config import ConfigError
from engine.lab.observation import observe
from engine.lab.reconciliation import Cause
from tests.dashboard.fake_engine import fake_engine
from tests.dashboard.simulated import SimulatedEngine
from tests.events.traces import busy_run, write_trace
from tests.servers import EngineServer, Process, free_port, wait_until

KEY = "very-secret"


def run(*args: str, **environment: str) -> tuple[int, str]:
    process = Process("capacity", *args, **environment)
    code = process.popen.wait(60)
    process._reader.join(10)
    return code, process.output


def data(*args: str, **environment: str) -> dict:
    code, output = run(*args, "--json", **environment)
    assert code == 0, output
    return json.loads(output)


def test_the_figures_of_the_readme_are_printed():
    code, output = run(
        *("--model", "Qwen/Qwen2.5-0.5B-Instruct", "--kv-cache-memory", "12.4GB"),
        *("--lengths", "4096,100000"),
    )
    assert code == 0, output
    for figure in ("12,288", "196,608", "63,069", "1,009,104", "246", "6,250"):
        assert figure in output


def test_json_has_the_same_figures_and_every_term_of_a_gpu():
    found = data(
        *("--layers", "24", "--kv-heads", "2", "--head-dim", "64", "--dtype", "float32"),
        *("--gpu-memory", "10GB", "--gpu-memory-utilization", "0.5", "--weights", "1GB"),
        *("--overhead", "500MB", "--block-size", "32", "--lengths", "33"),
    )
    assert found["budget"]["usable"] == 5 * 10**9
    assert found["budget"]["kv_memory"] == found["memory"] == 35 * 10**8
    assert (found["bytes_per_token"], found["bytes_per_block"]) == (24_576, 786_432)
    assert found["num_blocks"] == 35 * 10**8 // 786_432
    assert found["lengths"] == [
        {"length": 33, "blocks": 2, "wasted_slots": 31, "sequences": found["num_blocks"] // 2}
    ]
    assert found["observed"] is found["reconciliation"] is None


def test_a_local_folder_is_a_model(tmp_path):
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = data("--model", str(tmp_path), "--kv-cache-memory", "1MiB", "--dtype", "fp8")
    assert found["bytes_per_token"] == 2 * 2 * 4 * 8


def test_a_trace_is_accounted_for(tmp_path):
    head, records = busy_run()
    path = write_trace(tmp_path / "busy.jsonl.zst", head, records)
    found = data("--trace", str(path), "--lengths", "8")
    account = found["reconciliation"]
    assert account["sized_for"] - sum(e["missing"] for e in account["effects"]) == account["runs"]
    assert account["runs"] == found["observed"]["running"]
    assert account["sized_for"] == head.num_blocks // -(-8 // head.block_size)
    code, output = run("--trace", str(path), "--lengths", "8")
    assert code == 0, output
    assert f"Sized for {account['sized_for']}, runs {account['runs']}" in output


@contextmanager
def loaded(server: EngineServer, requests: int, **body):
    """More requests at once than the engine runs, each longer than the test."""

    def ask(number: int) -> None:
        prompt = [number] * 40
        with suppress(httpx.HTTPError):
            httpx.post(
                f"{server.url}/v1/completions",
                json={"prompt": prompt, "max_tokens": 3900, **body},
                headers={"Authorization": f"Bearer {KEY}"},
                timeout=300,
            )

    with ThreadPoolExecutor(requests) as pool:
        for number in range(requests):
            pool.submit(ask, number)
        try:
            yield
        finally:
            server.stop()


def server(*options: str) -> EngineServer:
    return EngineServer(
        *("--model", "none", "--shutdown-timeout", "0", *options), GLASSPOOL_API_KEY=KEY
    )


def test_a_real_engine_at_its_max_num_seqs_is_told_so():
    with server("--max-num-seqs", "3") as engine, loaded(engine, 6):
        wait_until(lambda: observe(engine_state(engine.url, KEY)).running == 3, 30)
        found = data("--engine", engine.url, "--lengths", "128", GLASSPOOL_API_KEY=KEY)
        code, output = run("--engine", engine.url, GLASSPOOL_API_KEY="wrong")
    assert (code, len(output.splitlines())) == (1, 1), output
    assert "set its key in GLASSPOOL_API_KEY" in output
    account, observed = found["reconciliation"], found["observed"]
    assert account["sized_for"] == 1024 // 8
    assert (account["runs"], observed["waiting"], observed["max_num_seqs"]) == (3, 3, 3)
    assert account["largest"]["cause"] == Cause.MAX_NUM_SEQS
    assert sum(effect["missing"] for effect in account["effects"]) == 128 - 3
    assert observed["entries"] == [-(-tokens // 16) for tokens in observed["tokens"]]


def test_a_real_engine_whose_sequences_are_longer_than_assumed_is_told_so():
    with (
        server("--num-gpu-blocks-override", "260", "--watermark", "0") as engine,
        loaded(engine, 40),
    ):

        def preempted() -> bool:
            found = observe(engine_state(engine.url, KEY))
            return found.waiting > 0 and found.running > 0 and found.mean_tokens > 160

        wait_until(preempted, 60)
        found = data("--engine", engine.url, "--lengths", "48", GLASSPOOL_API_KEY=KEY)
    account = found["reconciliation"]
    assert account["sized_for"] == 260 // 3
    assert account["largest"]["cause"] == Cause.LENGTH
    assert sum(effect["missing"] for effect in account["effects"]) == account["missing"]


def test_the_state_of_an_engine_is_read_from_its_stream():
    with fake_engine(SimulatedEngine(48, seed=3)) as engine:
        engine.step(30)
        state = engine_state(f"{engine.url}/v1/", None)
    assert state.seq == 29
    assert observe(state).running > 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "give a memory: --kv-cache-memory"),
        (("--kv-cache-memory", "1GB"), "give a --model, or --layers"),
        (("--model", "x", "--kv-cache-memory", "1GB"), "x is no folder here and not in the table"),
        (("--model", "gemma-2b", "--kv-cache-memory", "much"), "much is no amount of memory"),
        (("--model", "gemma-2b", "--kv-cache-memory", "1GB", "--gpu-memory", "1GB"), "same thing"),
        (("--model", "gemma-2b", "--gpu-memory", "4GB"), "nothing is left for the KV cache"),
        (("--model", "gemma-2b", "--kv-cache-memory", "1KB"), "hold no block"),
        (("--layers", "2", "--kv-cache-memory", "1GB"), "stand together"),
        (
            ("--layers", "2", "--kv-heads", "1", "--head-dim", "8", "--gpu-memory", "1GB"),
            "give --weights 16GB",
        ),
        (
            ("--model", "gemma-2b", "--kv-cache-memory", "1GB", "--lengths", "12,x"),
            "'12,x' is no list of lengths",
        ),
        (("--model", "gemma-2b", "--kv-cache-memory", "1GB", "--dtype", "int3"), "dtype int3"),
        (("--model", "gemma-2b", "--kv-cache-memory", "1GB", "--dtype", ""), "dtype  is not known"),
        (
            ("--model", "gemma-2b", "--kv-cache-memory", "1GB", "--block-size", "0"),
            "block_size is 0",
        ),
        (("--engine", "x", "--trace", "y"), "give one of them"),
        (("--engine", "localhost:8000"), "localhost:8000 is no engine's address"),
        (("--engine", "http://127.0.0.1:8000", "--model", "gemma-2b"), "give a memory"),
        (("--trace", "missing.jsonl.zst"), "missing.jsonl.zst"),
    ],
)
def test_what_a_user_can_mend_is_one_line(args, words):
    done = subprocess.run(
        [sys.executable, "-m", "engine.cli", "capacity", *args],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith("glasspool: ")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_address_without_an_engine_is_told_in_one_line():
    with pytest.raises(ConfigError, match="no event stream at http://127"):
        engine_state(f"http://127.0.0.1:{free_port()}", None)
