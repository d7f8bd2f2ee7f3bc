"""The exported timeline is in the Trace Event format, and shows what the trace has."""

import copy
import gzip
import json
from collections import Counter

import pytest

from engine.events import TraceReader, measure_trace
from engine.events.records import CopyOnWrite, Preempt, RequestRejected, Step
from engine.export.perfetto import export_perfetto
from engine.export.trace_events import COPIES, PREEMPTIONS, STEPS
from tests.demo_data import OVERVIEW, TRACES
from tests.events.traces import busy_run, write_trace
from tests.export.trace_event_format import check_document

RUN = busy_run()


def exported(trace, folder, name="out.json"):
    export_perfetto(trace, folder / name)
    return json.loads((folder / name).read_bytes())


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write_trace(tmp_path_factory.mktemp("perfetto") / "run.jsonl.zst", *RUN)


@pytest.fixture(scope="module")
def document(trace):
    return exported(trace, trace.parent)


def records(path, kind):
    with TraceReader(path) as reader:
        steps = [record for record in reader if isinstance(record, Step)]
    return [event for step in steps for event in step.events if isinstance(event, kind)]


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_recorded_run_is_in_the_format(path, tmp_path):
    document = exported(path, tmp_path)
    check_document(document)
    counts = counted(document)
    assert counts["X", STEPS, "step"] == counts["X", STEPS, "model"] == measure_trace(path).steps


def counted(document):
    """How many events of a phase, a thread and a first word there are."""
    events = document["traceEvents"]
    return Counter((e["ph"], e.get("tid"), e["name"].split()[0]) for e in events)


def test_the_demo_has_its_copies_and_preemptions(tmp_path):
    counts = counted(exported(OVERVIEW, tmp_path))
    assert counts["X", STEPS, "step"] == 263
    assert sum(n for (ph, tid, _), n in counts.items() if (ph, tid) == ("X", COPIES)) == 19
    assert counts["X", PREEMPTIONS, "preempted"] == 17
    assert counts["X", PREEMPTIONS, "resumed"] == 17


def test_a_run_with_every_event_is_in_the_format(document):
    check_document(document)


def test_a_cut_and_a_gap_leave_nothing_open(tmp_path):
    gap = write_trace(tmp_path / "gap.jsonl.zst", *RUN, gap=(8, 14))
    document = exported(gap, tmp_path)
    check_document(document)
    assert any("7 records left out" in e["name"] for e in document["traceEvents"])
    late = [record for record in RUN[1] if record.seq >= 9][1:]
    check_document(exported(write_trace(tmp_path / "late.jsonl.zst", RUN[0], late), tmp_path))


def test_phases_follow_the_life_of_a_sequence(document):
    phases = {}
    for event in document["traceEvents"]:
        if event["ph"] == "b" and "(" not in event["name"]:
            phases.setdefault(event["id"], []).append(event["name"])
    assert phases[0] == ["queued", "prefill", "decode"]
    preempted = [names for names in phases.values() if "preempted" in names]
    assert preempted
    for names in preempted:
        at = names.index("preempted")
        assert names[at + 1 : at + 2] in ([], ["recompute"])
        assert names[0] in ("queued", "decode"), "a fork begins in its parent's phase"


def test_counters_are_the_pool_after_each_record(trace, document):
    blocks = [e["args"] for e in document["traceEvents"] if (e["ph"], e["name"]) == ("C", "blocks")]
    with TraceReader(trace) as reader:
        pools = [
            {"free": s.free_blocks, "cached": s.cached_blocks, "active": s.active_blocks}
            for record, s in reader.fold()
            if isinstance(record, Step)
        ]
    assert blocks == pools


def test_each_copy_preemption_and_rejection_is_there_once(trace, document):
    events = document["traceEvents"]
    copies = [e["args"] for e in events if e["ph"] == "X" and e["tid"] == COPIES]
    assert [(c["source"], c["target"]) for c in copies] == [
        (e.source, e.target) for e in records(trace, CopyOnWrite)
    ]
    arrows = Counter((e["ph"], e["cat"]) for e in events if e["ph"] in "sf")
    assert arrows["s", "copy-on-write"] == arrows["f", "copy-on-write"] == len(copies)
    assert arrows["s", "preemption"] == len(records(trace, Preempt)) > 0
    rejected = [e for e in events if e["ph"] == "i" and e["name"].startswith("rejected")]
    assert len(rejected) == len(records(trace, RequestRejected)) == 1


def test_a_name_that_ends_in_gz_is_compressed(trace, tmp_path, document):
    export_perfetto(trace, tmp_path / "out.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes())) == document


BREAKS = {
    "an unknown phase": lambda e, at: e[at("X")].update(ph="Z"),
    "a field left out": lambda e, at: e[at("X")].pop("dur"),
    "slices that overlap": lambda e, at: e[at("X") + 1].update(dur=2 * e[at("X")]["dur"]),
    "an end without a begin": lambda e, at: e.pop(at("b")),
    "ends in another order": lambda e, at: e[at("e")].update(name="other"),
    "an arrow from nowhere": lambda e, at: e[at("s")].update(ts=1e15),
    "a counter of text": lambda e, at: e[at("C")].update(args={"free": "many"}),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_checker_itself_finds(name, document):
    broken = copy.deepcopy(document)
    events = broken["traceEvents"]
    BREAKS[name](events, lambda ph: next(n for n, e in enumerate(events) if e["ph"] == ph))
    with pytest.raises(AssertionError):
        check_document(broken)
