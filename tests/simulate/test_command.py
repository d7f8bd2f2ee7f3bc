"""`glasspool simulate`: what it takes, prints, writes, and refuses in one line."""

import re
import sys
from pathlib import Path

import msgspec
import pytest

from engine import cli
from engine.events import TraceReader, check_trace
from engine.simulate_commands import OF_WORKLOADS

SMALL = ["--num-gpu-blocks-override", "40", "--max-model-len", "64", "--block-size", "4"]
FIXED = ["--workload", "fixed", "--input-len", "20", "--output-len", "12", *SMALL]
TEN = [*FIXED, "--num-requests", "10", "--request-rate", "20"]


def glasspool(monkeypatch, capsys, *arguments: str) -> str:
    """What the command prints; its error, where it ends with one."""
    monkeypatch.setattr(sys, "argv", ["glasspool", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    said = capsys.readouterr()
    if end.value.code:
        assert said.err.count("\n") == 1, "an error is one line"
        return said.err
    return said.out


@pytest.fixture
def simulate(monkeypatch, capsys):
    return lambda *arguments: glasspool(monkeypatch, capsys, "simulate", *arguments)


@pytest.fixture
def trace(simulate, tmp_path) -> Path:
    path = tmp_path / "run.jsonl.zst"
    simulate(*TEN, "--out", path)
    return path


def test_a_run_is_figures_and_a_trace_that_says_how_it_was_made(simulate, tmp_path):
    path = tmp_path / "run.jsonl.zst"
    said = simulate(*TEN, "--out", path)
    assert "10 finished, 0 refused" in said
    assert "40 blocks of 4 slots" in said
    assert check_trace(path).fault is None
    with TraceReader(path) as reader:
        header = reader.header
    assert header.simulated
    assert header.config["workload"] == (
        "fixed 20 in, 12 out, 20 requests/s, first 10 requests, seed 0, base"
    )
    assert header.config["cost_step"] == 0.015


def test_stats_says_that_a_trace_is_simulated(trace, monkeypatch, capsys):
    assert "Simulated: no model ran" in glasspool(monkeypatch, capsys, "stats", trace)
    real = Path(__file__).parents[2] / "demo_data" / "smollm2-96-blocks.jsonl.zst"
    assert "Simulated" not in glasspool(monkeypatch, capsys, "stats", real)


def test_variations_are_a_cross_product_with_the_base_first_and_no_run_twice(simulate, tmp_path):
    out = tmp_path / "outcomes"
    simulate(
        *TEN, "--vary", "num_gpu_blocks_override=20,40", "--vary", "enable_prefix_caching=on,off",
        "--out", out, "--keep-traces",
    )  # fmt: skip
    outcomes = msgspec.json.decode((out / "outcomes.json").read_bytes())
    assert [outcome["name"] for outcome in outcomes] == [
        "base",
        "num_gpu_blocks_override=20, enable_prefix_caching=on",
        "num_gpu_blocks_override=20, enable_prefix_caching=off",
        "num_gpu_blocks_override=40, enable_prefix_caching=off",
    ]
    assert [outcome["num_blocks"] for outcome in outcomes] == [40, 20, 20, 40]
    assert "<svg" in (out / "outcomes.svg").read_text()
    for outcome in outcomes:
        assert check_trace(out / outcome["trace"]).fault is None
        with TraceReader(out / outcome["trace"]) as reader:
            assert reader.header.num_blocks == outcome["num_blocks"]


def test_what_if_shows_the_recorded_run_beside_the_simulated_ones(simulate, trace, tmp_path):
    out = tmp_path / "outcomes"
    said = simulate("--from", trace, "--vary", "scale_rate=0.5", "--out", out)
    assert "R² 1.000" in said
    outcomes = msgspec.json.decode((out / "outcomes.json").read_bytes())
    assert [outcome["name"] for outcome in outcomes] == ["recorded", "base", "scale_rate=0.5"]
    recorded, base, slower = (outcome["figures"] for outcome in outcomes)
    for name in ("seconds", "steps", "finished", "output_tokens", "utilisation_mean"):
        assert base[name] == pytest.approx(recorded[name], rel=0.02), name
    assert slower["seconds"] > 1.5 * base["seconds"]


@pytest.mark.parametrize("option", OF_WORKLOADS)
def test_a_recorded_run_is_asked_as_it_was_so_options_of_workloads_are_refused(
    simulate, trace, option
):
    option = f"--{option.replace('_', '-')}"
    assert f"{option} is for --workload" in simulate("--from", trace, option, "1")


def test_a_file_of_a_public_trace_is_a_workload(simulate, tmp_path):
    csv = tmp_path / "azure.csv"
    csv.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,30,4\n2023-11-16 18:15:50.9951690,900,10\n"
    )
    said = simulate("--workload", csv, *SMALL)
    assert "azure.csv, its own times, seed 0: 2 requests" in said
    assert "1 finished, 1 refused" in said
    assert "refused 1 prompt_too_long" in said


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "give --workload .* or --from"),
        (["--workload", "nothing"], "is no file, and none of beam, bursts, fixed"),
        (["--workload", "fixed"], "has no end: give --num-requests"),
        (["--workload", "fixed", "--request-rate", "1"], "has no end: give --seconds or"),
        (["--workload", "parallel", "--parameter", "k=2"], "has no parameter k; it has n"),
        ([*TEN, "--request-rate", "0"], "--request-rate is 0; it must be above 0"),
        ([*TEN, "--seconds", "-1"], "--seconds is -1.0; it is above 0"),
        (
            ["--workload", "fixed", "--num-requests", str(10**20)],
            "--num-requests is 100000000000000000000",
        ),
        ([*TEN, "--cost", "fast"], "cost fast is not known: name one of gpu-32b, cpu"),
        ([*TEN, "--cost", "cpu", "--cost-from", "x"], "--cost or --cost-from, not both"),
        ([*TEN, "--vary", "blocks=3"], "no field=value,value; fields are block_size"),
        ([*TEN, "--vary", "block_size=8,x"], "block_size=x: it is a whole number"),
        ([*TEN, "--vary", "enable_prefix_caching=2"], "it is on or off"),
        ([*TEN, "--vary", "scale_rate=0"], "scale_rate=0: it is a number above 0"),
        ([*TEN, "--vary", "block_size=0"], "block_size is 0; it must be at least 1"),
        ([*TEN, "--block-size", str(10**20)], f"block_size is {10**20}; it is at most 1,048,576"),
        (
            [*TEN, "--num-gpu-blocks-override", str(10**20)],
            f"num_blocks is {10**20}; it is at most 16,777,216",
        ),
        ([*TEN, "--vary", "scheduling_policy=lifo"], "it is fcfs or priority"),
        ([*TEN, "--vary", "block_size=8", "--vary", "block_size=2"], "is given twice"),
        (
            [*TEN, "--vary", "num_gpu_blocks_override=" + ",".join(map(str, range(20, 100)))],
            "asks for 80 runs, more than 64",
        ),
        ([*TEN, "--vary", "block_size=8", "--out", "x.jsonl.zst"], "2 runs do not fit into one"),
        ([*TEN, "--keep-traces"], "--keep-traces needs a folder"),
        ([*TEN, "--out", "/proc/x/run.jsonl.zst"], "can't write /proc/x/run.jsonl.zst"),
        ([*TEN, "--scheduling-policy", "lifo"], "scheduling_policy lifo is not known"),
        (["--from", "missing.jsonl.zst"], "missing.jsonl.zst"),
    ],
)
def test_what_cannot_be_done_is_one_line_with_the_remedy(simulate, arguments, error):
    assert re.search(error, simulate(*arguments))
