"""Figures of runs whose records are written by hand."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from engine.bench import serve_table
from engine.bench.serve_client import Client, Failure, RequestRecord
from engine.bench.serve_load import Load
from engine.bench.serve_prompts import Endpoint, Prompts
from engine.bench.serve_report import figures, percentile, spread_ms
from engine.workloads.named import Workload
from engine.workloads.request import WorkloadRequest
from tests.bench.settings import settings


def test_percentiles_lie_between_the_nearest_ranks():
    assert [percentile([10, 20, 40], p) for p in (0, 25, 50, 90, 100)] == [10, 15, 20, 36, 40]
    assert percentile([7], 99) == 7


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 100))
def test_percentiles_equal_numpys(values, percent):
    expected = numpy.percentile(values, percent)
    assert percentile(sorted(values), percent) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_spread_is_in_milliseconds_and_empty_without_values():
    spread = spread_ms([0.003, 0.001])
    assert (spread.count, spread.mean, spread.p50, spread.max) == (2, 2, 2, 3)
    assert spread.p90 == pytest.approx(2.8)
    assert spread_ms([]).mean is None


def record(
    sent: float,
    chunks: tuple[float, ...] = (),
    ended: float = 0.0,
    tokens: int | None = None,
    failure: Failure | None = None,
    due: float | None = None,
    n: int = 1,
) -> RequestRecord:
    """A request with content chunks at these times."""
    made = RequestRecord(sent if due is None else due, WorkloadRequest(0, 10, 4, n=n))
    made.sent, made.ended, made.failure = sent, ended, failure
    for now in chunks:
        made.reading.feed(b'data: {"choices": [{"text": "a"}]}\n', now)
    made.reading.output_tokens = tokens
    made.reading.prompt_tokens = None if tokens is None else 11
    return made


def load(*records: RequestRecord) -> Load:
    client = Client("http://nowhere", Endpoint.COMPLETIONS, None, 1)
    run = Load(client, Prompts(Endpoint.COMPLETIONS, "m", False, 0), None)
    run.records = list(records)
    return run


def of(*records: RequestRecord, **options):
    return figures(load(*records), settings(**options))


def test_figures_of_two_requests():
    result = of(
        record(100, (101, 102, 104), 105, tokens=4), record(102, (104,), 110, tokens=1, due=101.5)
    )
    assert (result.completed, result.failed, result.cut_off, result.duration) == (2, 0, 0, 10)
    assert (result.request_throughput, result.output_throughput) == (0.2, 0.5)
    assert result.total_token_throughput == 2.7
    assert (result.total_input_tokens, result.total_output_tokens) == (22, 5)
    assert (result.ttft_ms.mean, result.ttft_ms.max) == (1500, 2000)
    assert (result.itl_ms.count, result.itl_ms.mean) == (2, 1500)
    assert (result.tpot_ms.count, result.tpot_ms.mean) == (1, 1000)
    assert (result.e2el_ms.mean, result.e2el_ms.max) == (6500, 8000)
    assert (result.sent_late_ms.mean, result.sent_late_ms.max) == (250, 500)
    assert result.chunks == 4


def test_choices_of_a_request_run_beside_each_other():
    result = of(record(0, (1, 2, 4), 5, tokens=8, n=2))
    assert result.asked_output_tokens == 8
    assert (result.tpot_ms.count, result.tpot_ms.mean) == (1, 1000)
    assert of(record(0, (1,), 2, tokens=2, n=2)).tpot_ms.count == 0


def test_concurrency_is_what_was_in_flight_over_time():
    result = of(record(0, (), 4), record(2, (), 6), record(4, (), 8), record(6, (), 8))
    assert (result.mean_concurrent_requests, result.max_concurrent_requests) == (14 / 8, 2)


def test_requests_that_failed_or_were_cut_off_count_in_no_latency_and_no_tokens():
    failed = record(0, (1, 100), 200, tokens=99, failure=Failure(500, "no"))
    cut_off = record(0, (50,), 60, tokens=99)
    cut_off.cut_off = True
    result = of(failed, cut_off, record(0, (1, 2), 3, tokens=2))
    assert (result.completed, result.failed, result.cut_off) == (1, 1, 1)
    assert (result.ttft_ms.count, result.ttft_ms.max) == (1, 1000)
    assert (result.itl_ms.count, result.tpot_ms.count, result.e2el_ms.count) == (1, 1, 1)
    assert (result.total_output_tokens, result.asked_output_tokens) == (2, 4)


def test_tokens_are_unknown_where_one_answer_had_no_usage():
    result = of(record(0, (1,), 2, tokens=4), record(0, (1,), 2))
    assert result.total_output_tokens is result.output_throughput is None
    assert result.total_token_throughput is None
    assert result.request_throughput == 1
    assert result.notes == ["1 of 2 answers came without usage: tokens are unknown"]


def test_errors_are_counted_by_status_and_message_whatever_its_numbers():
    errors = [(503, "9 wait"), (503, "12 wait"), (400, "9 wait"), (None, "reset"), (503, "id a7f")]
    result = of(*(record(0, (), 1, failure=Failure(*error)) for error in errors))
    assert [(kind.status, kind.count, kind.message) for kind in result.errors] == [
        (503, 2, "9 wait"),
        (400, 1, "9 wait"),
        (None, 1, "reset"),
        (503, 1, "id a7f"),
    ]


def test_notes_tell_of_silent_and_short_answers():
    silent = record(0, (), 2, tokens=3)
    assert of(silent).notes == [
        "1 of 1 answers had no text: they have no TTFT",
        "answers ended early, 3 of 4 tokens: pass --ignore-eos where the server takes it",
    ]
    assert of(silent, ignore_eos=True).notes[1] == "answers ended early, 3 of 4 tokens"


def test_what_was_asked_whole_has_an_end_and_no_time_of_a_token():
    whole = RequestRecord(1, WorkloadRequest(0, 10, 4, n=2, use_beam_search=True))
    whole.sent, whole.ended = 1, 3
    whole.reading.prompt_tokens, whole.reading.output_tokens = 10, 8
    result = of(whole, workload=Workload.BEAM)
    assert not result.streamed
    assert result.ttft_ms is result.itl_ms is result.tpot_ms is result.chunks is None
    assert (result.e2el_ms.count, result.e2el_ms.mean) == (1, 2000)
    assert (result.total_output_tokens, result.output_throughput) == (8, 4)
    assert [note[:18] for note in result.notes] == ["answers came whole"]
    assert of(record(0, (1,), 2, tokens=4)).streamed


def test_a_busy_client_is_told():
    run = load(record(0, (1,), 2, tokens=4))
    assert figures(run, settings()).notes == []
    run.lags = [0.001, 0.5]
    assert "this client was busy" in figures(run, settings()).notes[0]
    run.lags, run.cpu_seconds = [], 1.9
    assert "95% of a core" in figures(run, settings()).notes[0]


def test_waiting_for_a_place_counts_as_sent_late_and_is_told():
    whole = record(0, (1,), 2, tokens=4)
    (note,) = of(whole, request_rate=5, max_concurrency=3).notes
    assert "the 3 places of --max-concurrency" in note
    assert of(whole, max_concurrency=3).notes == []


def test_a_run_of_which_nothing_ended_has_figures():
    result = of()
    assert (result.completed, result.duration, result.request_throughput) == (0, 0, None)


def test_the_table_fits_100_columns_and_shows_brackets_as_they_are(capsys):
    errors = (record(0, (), 1, failure=Failure(400, f"[/bold] {'x' * n}")) for n in range(150, 162))
    big = record(0, (1, 2), 123456, tokens=123_456_789)
    serve_table.show(Console(width=100), "model [x] at http://there", of(big, *errors))
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 100
    assert "model [x] at" in output
    assert "[/bold]" in output
    assert "4 other kinds" in output
    assert "123,456,789" in output
