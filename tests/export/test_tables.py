"""The exported tables have what the trace has: read back, counted and summed."""

import csv
from datetime import datetime

import pytest

from engine.events import TraceReader, measure_trace
from engine.events.records import AnyEvent, RequestRejected, Step
from engine.export.table_files import TableFormat, export_tables
from engine.export.tables import EVENTS, TABLES, TableRows
from tests.demo_data import TRACES
from tests.events.traces import busy_run, steps_of, write_trace

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
RUN = busy_run()


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return write_trace(tmp_path_factory.mktemp("tables") / "run.jsonl.zst", *RUN)


@pytest.fixture(scope="module")
def tables(trace):
    export_tables(trace, trace.parent, TableFormat.PARQUET)
    return {name: pq.read_table(trace.parent / f"{name}.parquet").to_pylist() for name in TABLES}


def total(rows, name):
    return sum(row[name] or 0 for row in rows)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_sums_over_the_demos_tables_are_its_figures(path, tmp_path):
    written = export_tables(path, tmp_path, TableFormat.PARQUET)
    steps, events, requests = (
        pq.read_table(tmp_path / f"{name}.parquet").to_pylist() for name in TABLES
    )
    assert list(written.values()) == [len(steps), len(events), len(requests)]
    stats = measure_trace(path)
    totals = stats.totals
    assert len(events) == stats.events == total(steps, "events")
    for work in ("prefill", "decode", "recompute"):
        assert total(steps, f"{work}_tokens") == getattr(totals, f"{work}_tokens")

    def count(kind, **fields):
        return sum(
            row["type"] == kind and all(row[name] == value for name, value in fields.items())
            for row in events
        )

    assert count("cow") == totals.cow_copies
    assert count("evict") == totals.evicted
    assert count("allocation_failed") == totals.allocation_failures
    assert count("preempt") == sum(totals.preemptions.values())
    assert count("release", left=0) == totals.released
    handed_out = [row for row in events if row["type"] in ("allocate", "cow")]
    assert sum(row["from"] == "free" for row in handed_out) == totals.allocated_free
    assert sum(row["from"] == "evicted" for row in handed_out) == totals.allocated_evicted
    outcomes = [row["outcome"] for row in requests]
    assert {name: outcomes.count(name) for name in set(outcomes)} == totals.requests_finished
    assert total(requests, "output_tokens") == stats.output_tokens
    waited = [row["queue_seconds"] for row in requests if row["queue_seconds"] is not None]
    assert sum(waited) / len(waited) == pytest.approx(stats.queue_seconds.mean)


def test_steps_have_the_pool_after_them_and_both_clocks(trace, tables):
    with TraceReader(trace) as reader:
        head = reader.header
        pairs = []
        for record, state in reader.fold():
            if isinstance(record, Step):
                pairs.append((record, state.active_blocks, state.shared_blocks))
    assert len(pairs) == len(tables["steps"])
    start = RUN[1][0].time
    for row, (step, active, shared) in zip(tables["steps"], pairs, strict=True):
        assert (row["seq"], row["step"]) == (step.seq, step.step)
        assert (row["active_blocks"], row["shared_blocks"]) == (active, shared)
        assert row["free_blocks"] + row["cached_blocks"] + active == head.num_blocks
        assert row["began_at"] == pytest.approx(step.time - start)
        wall = head.wall_time + step.time - head.monotonic
        assert row["wall_time"].timestamp() == pytest.approx(wall, abs=2e-6)


def test_events_have_every_field_of_theirs_but_text_of_prompts(tables):
    events = [event for step in steps_of(RUN[1]) for event in step.events]
    assert [row["type"] for row in tables["events"]] == [
        type(event).__struct_config__.tag for event in events
    ]
    for row, event in zip(tables["events"], events, strict=True):
        filled = [v for name, v in row.items() if v is not None and name not in
                  ("seq", "step", "number", "at", "wall_time", "type")]  # fmt: skip
        given = [getattr(event, name) for name in event.__struct_fields__
                 if name not in UNTOLD.get(row["type"], ())]  # fmt: skip
        assert sorted(map(str, filled)) == sorted(str(v) for v in given if v is not None)


UNTOLD = {
    "request_added": ("prompt_text", "arrived"),
    "request_finished": (
        "preemptions", "recomputed_tokens", "queue_seconds", "first_token_seconds",
        "duration_seconds",
    ),
}  # fmt: skip
"""What is in the table of requests instead."""


def test_every_kind_of_event_has_its_columns():
    rows = TableRows(RUN[0])
    for kind in AnyEvent.__args__:
        columns = [column for _, column in rows._names[kind]]
        assert len(columns) == len(set(columns))
        assert set(columns) <= EVENTS.keys()


def test_each_request_is_one_row(tables):
    names = [row["request"] for row in tables["requests"]]
    assert len(names) == len(set(names))
    rejected = [e for s in steps_of(RUN[1]) for e in s.events if isinstance(e, RequestRejected)]
    row = tables["requests"][names.index(rejected[0].request)]
    assert (row["outcome"], row["prompt_tokens"], row["output_tokens"]) == ("rejected", 19, None)


def test_unfinished_requests_come_last_without_outcome(tmp_path):
    begun = [record for record in RUN[1] if record.seq <= 5]
    path = write_trace(tmp_path / "cut.jsonl.zst", RUN[0], begun)
    export_tables(path, tmp_path, TableFormat.PARQUET)
    rows = pq.read_table(tmp_path / "requests.parquet").to_pylist()
    *_, (_, state) = TraceReader(path).fold()
    unfinished = [row for row in rows if row["outcome"] is None]
    assert {row["request"] for row in unfinished} == set(state.requests)
    assert rows[-len(unfinished) :] == unfinished


def test_what_the_producer_does_not_know_is_null(tmp_path):
    import msgspec

    head = msgspec.structs.replace(RUN[0], knows=["physical_blocks"])
    export_tables(write_trace(tmp_path / "r.zst", head, RUN[1]), tmp_path, TableFormat.PARQUET)
    steps = pq.read_table(tmp_path / "steps.parquet").to_pylist()
    for name in ("waiting", "model_seconds", "slots_filled", "shared_blocks", "recompute_tokens"):
        assert {row[name] for row in steps} == {None}
    assert all(row["active_blocks"] is not None for row in steps)


def test_csv_has_the_same_cells(trace, tables, tmp_path):
    export_tables(trace, tmp_path, TableFormat.CSV)
    for name in TABLES:
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == list(TABLES[name])
        for text, row in zip(rows, tables[name], strict=True):
            for column, value in row.items():
                match value:
                    case None:
                        assert text[column] == ""
                    case datetime():
                        assert datetime.fromisoformat(text[column]) == value
                    case _:
                        assert text[column] == str(value)


def test_rows_are_written_in_groups_not_kept(trace, tmp_path, monkeypatch):
    from engine.export import parquet

    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 10)
    export_tables(trace, tmp_path, TableFormat.PARQUET)
    file = pq.ParquetFile(tmp_path / "events.parquet")
    assert file.num_row_groups == -(-file.metadata.num_rows // 10) > 5


def test_types_are_those_that_a_reader_expects(tables, trace):
    schema = pq.read_schema(trace.parent / "steps.parquet")
    assert str(schema.field("seq").type) == "int64"
    assert str(schema.field("began_at").type) == "double"
    assert str(schema.field("wall_time").type) == "timestamp[us, tz=UTC]"
    events = pq.read_schema(trace.parent / "events.parquet")
    assert str(events.field("resumed").type) == "bool"
    assert str(events.field("why").type) == "string"
