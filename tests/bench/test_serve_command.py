"""`glasspool bench serve` as users run it: table, JSON, exit codes, refusals in one line."""

import json
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.core.config import ConfigError
from engine.events import TraceReader
from engine.events.records import Fork, Step
from engine.service.ports import free_port
from engine.workloads.named import Workload
from tests.bench.fake_openai import Answer, FakeServer
from tests.bench.settings import settings
from tests.servers import EngineServer, Process, wait_until


def bench(*args: str, **environment: str) -> tuple[int, str]:
    process = Process("bench", "serve", *args, COLUMNS="100", **environment)
    code = process.popen.wait(60)
    process._reader.join(10)
    return code, process.output


def test_a_run_prints_a_table_and_writes_json(tmp_path):
    out = tmp_path / "run.json"
    answer = {3: Answer(status=429, error="slow down")}
    with FakeServer(lambda number: answer.get(number, Answer())) as server:
        code, output = bench(
            *("--url", f"{server.url}/v1/", "--num-prompts", "8", "--input-len", "20"),
            *("--output-len", "4", "--max-concurrency", "2", "--json", str(out), "--ignore-eos"),
            GLASSPOOL_API_KEY="secret",
        )
    assert code == 0, output
    assert "fixed 20 in, 4 out, at most 2 in flight" in output
    assert "slow down" in output
    assert "time to first token (TTFT)" in output
    assert max(map(len, output.splitlines())) <= 100
    run = json.loads(out.read_text())
    assert (run["completed"], run["failed"], run["total_output_tokens"]) == (7, 1, 28)
    assert run["total_input_tokens"] == 140
    assert run["max_concurrent_requests"] <= 2
    assert run["ttft_ms"]["p50"] > 0
    assert run["errors"] == [{"status": 429, "count": 1, "message": "slow down"}]
    assert (run["settings"]["model"], run["settings"]["ignore_eos"]) == ("fake", True)
    assert server.headers[0]["authorization"] == "Bearer secret"
    assert "secret" not in out.read_text() + output


def test_json_alone_is_on_stdout_where_asked_for():
    with FakeServer() as server:
        run = subprocess.run(
            [
                *(sys.executable, "-m", "engine.cli", "bench", "serve", "--url", server.url),
                *("--num-prompts", "2", "--request-rate", "inf", "--json", "-"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["settings"]["request_rate"] == "inf"
    assert "time to first token" in run.stderr


def test_a_trace_is_replayed_with_its_lengths_scaled(tmp_path):
    trace = tmp_path / "trace.jsonl"
    line = '{{"timestamp": {}, "input_length": 600, "output_length": 20, "hash_ids": [0, {}]}}\n'
    trace.write_text("".join(line.format(time, time) for time in (0, 400, 600)))
    with FakeServer() as server:
        code, output = bench(
            *("--url", server.url, "--workload", "trace", "--trace", str(trace)),
            *("--scale-length", "0.1", "--scale-rate", "2"),
        )
    assert code == 0, output
    assert "trace.jsonl, lengths × 0.1, its own times × 2" in output
    prompts = [body["prompt"] for body in server.bodies]
    assert [len(prompt) for prompt in prompts] == [60] * 3
    assert {tuple(prompt[:51]) for prompt in prompts} == {tuple(prompts[0][:51])}
    assert [body["max_tokens"] for body in server.bodies] == [2] * 3


def test_a_named_workload_takes_its_parameters_and_asks_for_n_answers():
    with FakeServer() as server:
        code, output = bench(
            *("--url", server.url, "--workload", "parallel", "--parameter", "n=3"),
            *("--output-len", "4", "--sigma", "0", "--num-prompts", "2", "--json", "-"),
        )
        assert code == 0, output
        assert [body["n"] for body in server.bodies] == [3, 3]
        assert '"asked_output_tokens": 24' in output
        assert '"chunks": 24' in output
        code, output = bench("--url", server.url, "--parameter", "n=3")
        assert (code, output) == (
            1,
            "glasspool: workload fixed has no parameter n; it has none\n",
        )


BEAMS = ("--workload", "beam", "--parameter", "width=3", "--output-len", "6", "--sigma", "0")
UNKNOWN = ("ttft_ms", "itl_ms", "tpot_ms", "chunks")


def test_a_beam_search_is_asked_whole_and_what_that_cannot_tell_is_unknown(tmp_path):
    out = tmp_path / "run.json"
    with FakeServer() as server:
        code, output = bench(
            *("--url", server.url, *BEAMS, "--num-prompts", "4", "--json", str(out)),
        )
    assert code == 0, output
    for body in server.bodies:
        assert (body["n"], body["use_beam_search"], body["temperature"]) == (3, True, 0)
        assert not {"stream", "stream_options", "seed"} & body.keys()
    run = json.loads(out.read_text())
    assert (run["completed"], run["failed"], run["streamed"]) == (4, 0, False)
    assert {name: run[name] for name in UNKNOWN} == dict.fromkeys(UNKNOWN)
    assert run["total_output_tokens"] == run["asked_output_tokens"] == 4 * 3 * 6
    assert run["e2el_ms"]["count"] == 4
    assert run["e2el_ms"]["p50"] > 0
    assert "".join(run["notes"]).startswith("answers came whole, as a beam search is not streamed")
    for row in ("time to first token (TTFT)", "between chunks (ITL)", "per output token (TPOT)"):
        (line,) = (line for line in output.splitlines() if row in line)
        assert line.replace("│", " ").split()[-7:] == ["not", "measured", *["–"] * 5]
    assert max(map(len, output.splitlines())) <= 100


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_an_engine_searches_with_the_beams_that_are_asked_for(endpoint, tmp_path):
    trace = tmp_path / "run.jsonl.zst"
    with EngineServer("--model", "none", "--record", str(trace)) as server:
        code, output = bench(
            *("--url", server.url, "--endpoint", endpoint, *BEAMS, "--num-prompts", "3"),
            *("--input-len", "40", "--ignore-eos", "--json", "-"),
        )
    assert code == 0, output
    run = json.loads(output[output.index("{") : output.rindex("}") + 1])
    assert (run["completed"], run["failed"], run["streamed"]) == (3, 0, False)
    assert run["total_output_tokens"] == 3 * 3 * 6
    assert run["total_input_tokens"] >= 3 * 40
    with TraceReader(trace) as reader:
        events = [event for step in reader if isinstance(step, Step) for event in step.events]
    # Three draws fork twice and no more; beams fork whenever one goes on in two ways.
    assert sum(isinstance(event, Fork) for event in events) > 3 * 2


def test_conversations_grow_over_http_by_what_was_said():
    with FakeServer() as server:
        code, output = bench(
            *("--url", server.url, "--workload", "multi-turn", "--parameter", "turns=3"),
            *("--parameter", "think=0.01", "--request-rate", "200", "--num-prompts", "12"),
            *("--sigma", "0", "--input-len", "20", "--output-len", "4"),
        )
    assert code == 0, output
    found = [body["prompt"] for body in server.bodies]
    longest = [prompt for prompt in found if len(prompt) == 68]
    assert longest
    for prompt in longest:
        assert prompt[:44] in found
        assert prompt[:20] in found


def test_an_interrupt_prints_what_there_is():
    held = threading.Event()
    with FakeServer(lambda number: Answer(hold=held if number > 2 else None)) as server:
        process = Process("bench", "serve", "--url", server.url, "--max-concurrency", "1")
        try:
            wait_until(lambda: server.in_flight == 1 and len(server.bodies) == 4, 60)
            code = process.stop(signal.SIGINT)
        finally:
            held.set()
    assert code == 130, process.output
    assert "0, 1 cut off" in process.output
    assert "interrupted" in process.output
    assert "Traceback" not in process.output


def test_a_server_that_goes_away_is_told_and_fails_the_run():
    held = threading.Event()
    with FakeServer(lambda number: Answer(hold=held if number > 0 else None)) as server:
        process = Process(
            *("bench", "serve", "--url", server.url, "--max-concurrency", "1"), COLUMNS="200"
        )
        wait_until(lambda: server.in_flight == 1 and len(server.bodies) == 2, 60)
        server.die()
        held.set()
        code = process.popen.wait(60)
        process._reader.join(10)
    assert code == 1, process.output
    assert "the server stopped answering" in process.output
    assert "requests ok" in process.output


def test_more_requests_than_the_shell_allows_files_are_in_flight():
    held = threading.Event()
    with FakeServer(lambda _: Answer(hold=held)) as server:
        command = "ulimit -Sn 60; exec " + shlex.join(
            [
                *(sys.executable, "-m", "engine.cli", "bench", "serve", "--url", server.url),
                *("--num-prompts", "90", "--output-len", "2"),
            ]
        )
        with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, text=True) as run:
            try:
                wait_until(lambda: server.in_flight == 90, 60, "all are in flight")
            finally:
                held.set()
            output, _ = run.communicate(timeout=60)
    assert run.returncode == 0, output
    assert server.most_in_flight == 90


def test_a_run_in_which_nothing_succeeds_fails():
    with FakeServer(lambda _: Answer(status=500, error="broken")) as server:
        code, output = bench("--url", server.url, "--num-prompts", "3")
    assert code == 1
    assert "broken" in output


def test_what_a_user_can_mend_is_one_line(tmp_path):
    nowhere = f"http://127.0.0.1:{free_port()}"
    code, output = bench("--url", nowhere)
    assert code == 1
    assert output.startswith(f"glasspool: nothing answers at {nowhere} (")
    assert len(output.splitlines()) == 1
    trace = tmp_path / "broken.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1\n")
    code, output = bench("--url", nowhere, "--workload", "trace", "--trace", str(trace))
    assert (code, output) == (
        1,
        f"glasspool: {trace}, line 2: 2 values under 3 columns: mend or delete the line\n",
    )
    code, output = bench("--json", str(tmp_path))
    assert (code, output) == (
        1,
        f"glasspool: {tmp_path} is no file to write: give --json another\n",
    )
    code, output = bench("--json", str(tmp_path / "no" / "run.json"))
    assert (code, "is no folder" in output) == (1, True)
    with FakeServer(models=()) as server:
        code, output = bench("--url", server.url)
        assert (code, "give one with --model" in output) == (1, True)
        server.model_status = 401
        code, output = bench("--url", server.url)
        assert (code, "GLASSPOOL_API_KEY" in output) == (1, True)
        assert not server.bodies


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"url": "127.0.0.1:8000"}, "no server's address"),
        ({"timeout": 0}, "--timeout is 0"),
        ({"num_prompts": 0}, "--num-prompts is 0"),
        ({"url": "http://"}, "no server's address"),
        ({"url": "http://[half"}, "no server's address"),
        ({"input_len": 0}, "--input-len is 0"),
        ({"max_concurrency": 0}, "--max-concurrency is 0"),
        ({"request_rate": 0}, "--request-rate is 0"),
        ({"request_rate": float("nan")}, "--request-rate is nan"),
        ({"timeout": float("inf")}, "--timeout is inf"),
        ({"range_ratio": 1.0}, "--range-ratio is 1"),
        ({"sigma": -1}, "--sigma is -1"),
        ({"trace": Path("x")}, "belong together"),
        ({"workload": Workload.TRACE}, "belong together"),
        ({"scale_rate": 2.0}, "no times to scale"),
        (
            {
                "workload": Workload.TRACE,
                "trace": Path("x"),
                "scale_rate": 2.0,
                "request_rate": 3.0,
            },
            "leave --request-rate out",
        ),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(changed, words):
    with pytest.raises(ConfigError, match=words):
        settings(**changed)


def trace_file(folder: Path) -> Path:
    path = folder / "trace.csv"
    rows = "".join(f"{second},m,{second + 1},3,0,x\n" for second in range(4))
    path.write_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + rows)
    return path


def test_a_traces_times_are_its_own_unless_a_rate_is_given(tmp_path):
    trace = {"workload": Workload.TRACE, "trace": trace_file(tmp_path)}
    assert [r.arrival for r in settings(**trace, scale_rate=2.0).requests()] == [0, 0.5, 1, 1.5]
    assert {r.arrival for r in settings(**trace, request_rate=float("inf")).requests()} == {0}
    drawn = settings(**trace, request_rate=9.0).requests()
    assert [r.prompt_tokens for r in drawn] == [1, 2, 3, 4]
    assert [r.arrival for r in drawn] == [r.arrival for r in settings(request_rate=9.0).requests()][
        :4
    ]


def test_only_a_limit_without_a_rate_closes_the_loop():
    assert settings(max_concurrency=2).closed_loop
    assert not settings(max_concurrency=2, request_rate=5.0).closed_loop
    assert not settings().closed_loop


def test_each_workload_has_its_lengths():
    fixed = settings(input_len=9).requests()
    assert len(fixed) == 5
    assert {r.prompt_tokens for r in fixed} == {9}
    uniform = settings(workload=Workload.UNIFORM, input_len=9, num_prompts=200).requests()
    assert {r.prompt_tokens for r in uniform} == set(range(5, 14))
    lognormal = settings(workload=Workload.LOGNORMAL, input_len=9, num_prompts=200).requests()
    assert max(r.prompt_tokens for r in lognormal) > 20
