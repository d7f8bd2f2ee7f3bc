"""`glasspool bench …` measures, prints a table, and writes data and a picture."""

import json

import pytest

from tests.servers import Process


def bench(*args: str) -> tuple[int, str]:
    process = Process("bench", *args, COLUMNS="200")
    code = process.popen.wait(240)
    process._reader.join(10)
    return code, process.output


def test_paging_runs_more_sequences_in_the_same_memory(tiny_model, tmp_path):
    code, output = bench(
        *("throughput", "--model", str(tiny_model), "--memory-tokens", "512"),
        *("--max-model-len", "256", "--batch", "1,8", "--requests", "8", "--repeats", "1"),
        *("--out", str(tmp_path)),
    )
    assert code == 0, output
    assert "paged / naive" in output
    one, eight = json.loads((tmp_path / "throughput.json").read_text())
    assert one["batch naive"] == one["batch paged"] == 1
    assert eight["batch naive"] == 2, "512 slots hold two reservations of 256"
    assert eight["batch paged"] > 2
    assert min(row[way] for row in (one, eight) for way in ("naive", "paged")) > 0
    assert (tmp_path / "throughput.svg").read_text().startswith("<svg")


def test_paged_and_contiguous_attention_are_timed_in_pairs(tmp_path):
    code, output = bench(
        *("attention", "--batch", "1,4", "--context", "64", "--block-size", "1,16"),
        *("--repeats", "3", "--out", str(tmp_path)),
    )
    assert code == 0, output
    rows = json.loads((tmp_path / "attention.json").read_text())
    assert [(row["batch"], row["block size"]) for row in rows] == [(1, 1), (1, 16), (4, 1), (4, 16)]
    assert all(row["paged / contiguous"] > 0 for row in rows)
    assert (tmp_path / "attention.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["attention", "--batch", "1,x"], "1,x is no list of numbers"),
        (["throughput", "--memory-tokens", "64"], "holds no sequence of max_model_len"),
    ],
)
def test_what_cannot_be_measured_is_one_line(tiny_model, args, words):
    if args[0] == "throughput":
        args = [*args, "--model", str(tiny_model)]
    code, output = bench(*args)
    assert code == 1
    assert words in output
    assert "Traceback" not in output
