"""`glasspool check`, `stats`, `export`, `diff`, as a shell sees them."""

import json
import subprocess
import sys

import msgspec
import pytest

from engine.events import measure_trace
from engine.events.records import CopyOnWrite, Step
from tests.demo_data import OVERVIEW
from tests.events.traces import busy_run, write_trace

RUN = busy_run()
DEMO = str(OVERVIEW)


def glasspool(*args, before="pass"):
    code = f"import sys; {before}; sys.argv[0] = 'glasspool'; from engine.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)


def unfolded(text):
    """A page's words, whatever its line breaks."""
    return " ".join(text.split())


@pytest.fixture
def broken(tmp_path):
    """A run in which a shared block is written without a copy."""
    records = []
    for record in RUN[1]:
        if isinstance(record, Step):
            events = [event for event in record.events if not isinstance(event, CopyOnWrite)]
            record = msgspec.structs.replace(record, events=events)
        records.append(record)
    return write_trace(tmp_path / "broken.jsonl.zst", RUN[0], records)


def test_check_says_what_it_checked():
    done = glasspool("check", DEMO)
    assert done.returncode == 0
    assert "265 records (263 steps, 10,929 events, 1 keyframe)" in unfolded(done.stdout)
    assert "all 16 rules" in done.stdout
    assert done.stderr == "", "no progress bar where there is no terminal"


def test_check_names_the_first_fault_and_fails(broken):
    done = glasspool("check", str(broken))
    assert done.returncode == 1
    said = unfolded(done.stdout)
    assert "which has ref count 2" in said
    assert "Rule 5:" in said
    assert "(line " in said


def test_check_names_the_rules_it_could_not_check(tmp_path):
    head = msgspec.structs.replace(RUN[0], config={})
    done = glasspool("check", str(write_trace(tmp_path / "run.jsonl.zst", head, RUN[1])))
    assert done.returncode == 0
    assert "not checked, the trace has no priorities of requests: rule 14" in unfolded(done.stdout)


@pytest.mark.parametrize("command", ["check", "stats", "export --to csv", "diff"])
def test_a_bad_file_is_one_line(tmp_path, command):
    bad = tmp_path / "bad.jsonl.zst"
    bad.write_bytes(b"nothing")
    name, *options = command.split()
    done = glasspool(name, str(bad), *([DEMO] if name == "diff" else []), *options)
    assert done.returncode == (2 if name == "diff" else 1)
    (line,) = done.stderr.splitlines()
    assert line.startswith("glasspool: ")
    assert "bad.jsonl.zst is not a readable Glasspool trace" in line


def test_stats_as_json_are_the_library_s():
    done = glasspool("stats", DEMO, "--json")
    assert json.loads(done.stdout) == msgspec.to_builtins(measure_trace(DEMO))


def test_stats_fit_a_page():
    done = glasspool("stats", DEMO)
    lines = done.stdout.splitlines()
    assert len(lines) < 50
    assert max(map(len, lines)) <= 100
    for words in ("recompute tax", "8.3 %", "mean by time", "17 of 9 requests", "between tokens"):
        assert words in done.stdout


def test_stats_print_what_is_not_known_as_unknown(tmp_path):
    head = msgspec.structs.replace(RUN[0], knows=["physical_blocks", "queues"])
    path = write_trace(tmp_path / "run.jsonl.zst", head, RUN[1])
    lines = {" ".join(line.split()) for line in glasspool("stats", str(path)).stdout.splitlines()}
    assert "in the queue unknown unknown unknown unknown unknown unknown" in lines
    assert "recompute tax unknown of all computed tokens" in lines


def test_diff_has_the_exit_codes_of_diff(broken, tmp_path):
    good = write_trace(tmp_path / "good.jsonl.zst", *RUN)
    same = glasspool("diff", str(good), str(good))
    assert (same.returncode, "same" in same.stdout) == (0, True)
    late = [record for record in RUN[1] if record.seq <= 9]
    other = glasspool("diff", str(good), str(write_trace(tmp_path / "b.zst", RUN[0], late)))
    assert other.returncode == 1
    assert "from step 10, record 10 on: B ends here" in unfolded(other.stdout)
    data = json.loads(glasspool("diff", str(good), str(good), "--json").stdout)
    assert data["same"] is True


@pytest.mark.parametrize(
    ("to", "out"), [("perfetto", "demo.json"), ("csv", "tables"), ("parquet", "tables")]
)
def test_export_says_what_it_wrote(to, out, tmp_path):
    if to == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    done = glasspool("export", DEMO, "--to", to, "--out", str(tmp_path / out))
    assert done.returncode == 0
    said = unfolded(done.stdout)
    assert ("2,4" in said) if to == "perfetto" else ("10,929 rows" in said)
    assert (tmp_path / out).exists()


def test_export_goes_beside_the_trace_by_default(tmp_path):
    path = write_trace(tmp_path / "run.jsonl.zst", *RUN)
    glasspool("export", str(path), "--to", "perfetto")
    glasspool("export", str(path), "--to", "csv")
    assert (tmp_path / "run.perfetto.json.gz").exists()
    assert (tmp_path / "run.csv" / "events.csv").exists()


def test_without_pyarrow_csv_works_and_parquet_names_the_remedy(tmp_path):
    missing = "sys.modules['pyarrow'] = None"
    folder = str(tmp_path / "out")
    assert glasspool("export", DEMO, "--to", "csv", "--out", folder, before=missing).returncode == 0
    done = glasspool("export", DEMO, "--to", "parquet", "--out", folder, before=missing)
    assert done.returncode == 1
    assert "glasspool[export]" in done.stderr


def test_a_place_that_cannot_be_written_is_named_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    for to in ("csv", "perfetto"):
        done = glasspool("export", DEMO, "--to", to, "--out", str(tmp_path / "file" / "x"))
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "--out" in line


def test_the_commands_need_no_torch():
    done = glasspool("check", DEMO, before="sys.modules['torch'] = None")
    assert done.returncode == 0
