"""`glasspool lab fragmentation` tells the library's figures, on the screen, as JSON and as pictures."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.cli import app, main
from engine.lab import LabSettings, default_sample, lab_requests, run_all, static_usage

ATTENTION = Path(__file__).parents[2] / "demo_data" / "attention-cpu.json"
SMALL = ("--count", "40", "--block-sizes", "8,16,64")


def lab(*args: str):
    done = CliRunner().invoke(app, ["lab", "fragmentation", *SMALL, *args])
    assert done.exit_code == 0, done.output
    return done


def test_the_json_is_the_librarys_result():
    data = json.loads(lab("--json", "--memory", "8192").stdout)
    sample = default_sample(40)
    assert (data["sequences"], data["tokens"]) == (40, sum(sample.totals))
    shown = {row["allocator"]: row["taken"] for row in data["static"]}
    usages = static_usage(sample.totals, LabSettings())
    assert shown == {usage.kind.value: usage.taken for usage in usages}
    runs = run_all(lab_requests(sample.lengths, 10, 0), 8192, LabSettings())
    for row, run in zip(data["dynamic"], runs, strict=True):
        assert row["allocator"] == run.kind.value
        assert (row["steps"], row["waited"]) == (run.steps, run.waited)
        uses = ("stored", "reserved", "internal", "external", "usable")
        assert sum(row[use] for use in uses) == pytest.approx(1)
    assert [row["block size"] for row in data["sweep"]] == [8, 16, 64]


def test_the_options_reach_the_allocators():
    args = ("--max-model-len", "8192", "--block-size", "64", "--model-shape", "2,64,24,2")
    rows = {row["allocator"]: row for row in json.loads(lab("--json", *args).stdout)["static"]}
    assert rows["naive"]["taken"] == 40 * 8192
    assert rows["mapped"]["taken"] == 40 * 8192
    assert rows["mapped"]["table entries"] == 40 * 48
    assert rows["paged"]["taken"] % 64 == 0


def test_the_time_of_attention_is_shown_where_measured_and_only_there():
    without = lab().stdout
    assert without.count("not measured") == 4
    with_times = lab("--attention", str(ATTENTION)).stdout
    assert with_times.count("not measured") == 1, "64 was not measured"
    assert "torch twins" in with_times


def test_out_writes_data_and_pictures(tmp_path):
    lab("--out", str(tmp_path), "--attention", str(ATTENTION))
    for name in ("static", "sweep", "dynamic", "memory"):
        assert json.loads((tmp_path / f"{name}.json").read_text())
        assert (tmp_path / f"{name}.svg").read_text().startswith("<svg")
    segments = json.loads((tmp_path / "memory.json").read_text())
    slots = sum(row["to"] - row["from"] for row in segments if row["allocator"] == "paged")
    assert slots == 16_384


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--lengths", "nowhere.csv"], "nowhere.csv is neither a file nor a way to draw"),
        (["--model-shape", "GPT-9"], "GPT-9 is no known shape"),
        (["--model-shape", "0,128,32,2"], "kv_heads is 0"),
        (["--block-size", "0"], "block_size is 0"),
        (["--block-sizes", "8,x"], "'8,x' is no list of numbers"),
        (["--block-sizes", ""], "'' is no list of numbers"),
        (["--lengths", ""], "an empty text is neither a file"),
        (["--lengths", "."], ".: Is a directory; name a CSV or JSON-lines file"),
        (["--model-shape", ""], "an empty text is no known shape"),
        (["--count", "99999999999999999999"], "at most 1,000,000"),
        (["--max-model-len", "99999999999999999999"], "at most 10,000,000"),
        (["--block-size", "99999999999999999999"], "at most 10,000,000"),
        (["--memory", "99999999999999999999"], "at most 16,777,216"),
        (["--memory", "0"], "memory is 0 slots"),
        (["--every", "inf"], "a request every inf steps can't be"),
        (["--every", "1e308"], "a request every 1e+308 steps can't be"),
        (["--every", "nan"], "a request every nan steps can't be"),
        (["--requests", "0"], "requests is 0"),
        (["--every", "0"], "give a number above 0"),
        (["--max-model-len", "3"], "none of the 40 lengths"),
        (
            ["--attention", "nowhere.json"],
            "nowhere.json: No such file or directory; give the file that",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_line(args, words, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["glasspool", "lab", "fragmentation", *SMALL, *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    error = capsys.readouterr().err.strip()
    assert words in error
    assert error.startswith("glasspool: ")
    assert "\n" not in error


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    file = tmp_path / "file"
    file.write_text("")
    args = ["lab", "fragmentation", *SMALL, "--json", "--out", str(file / "folder")]
    monkeypatch.setattr("sys.argv", ["glasspool", *args])
    with pytest.raises(SystemExit):
        main()
    assert "choose another place with --out" in capsys.readouterr().err
