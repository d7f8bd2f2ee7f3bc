"""Lengths are drawn, read from public traces, or from recorded runs; what can't be is one line."""

from pathlib import Path

import pytest

from engine.core.config import ConfigError
from engine.events import PoolState, TraceReader
from engine.events.records import SequenceFinished, Step
from engine.lab import Sample, default_sample, read_attention, read_lengths
from engine.lab.samples import split
from engine.workloads.lengths import Lengths
from tests.demo_data import TRACES

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59,374,44\n2023-11-17 00:00:01,396,1\n"


def test_drawn_lengths_are_the_workloads_own():
    assert read_lengths("fixed:100,400", 3).lengths == (Lengths(100, 400),) * 3
    uniform = read_lengths("uniform:2-5,7-9", 200).lengths
    assert {pair.prompt for pair in uniform} == {2, 3, 4, 5}
    assert {pair.output for pair in uniform} == {7, 8, 9}
    lognormal = read_lengths("lognormal:161,338,1.0", 4_000).lengths
    assert sum(pair.prompt for pair in lognormal) / 4_000 == pytest.approx(161, rel=0.1)
    assert sum(pair.output for pair in lognormal) / 4_000 == pytest.approx(338, rel=0.1)


def test_the_same_seed_gives_the_same_lengths():
    assert read_lengths("sample", 50, 7) == read_lengths("sample", 50, 7)
    assert read_lengths("sample", 50, 7) != read_lengths("sample", 50, 8)
    assert read_lengths("sample", 50).lengths == default_sample().lengths[:50]


@pytest.mark.parametrize("total", [1, 2, 3, 100, 4096])
def test_a_split_length_keeps_its_tokens_and_has_a_prompt(total):
    prompt, output = split(total)
    assert prompt + output == total
    assert prompt >= 1
    if total >= 100:
        assert prompt / total == pytest.approx(161 / 499, abs=0.01)


def test_of_a_public_trace_the_last_token_is_not_stored(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    sample = read_lengths(str(path))
    assert sample.totals == [374 + 43, 396]
    assert sample.name == "azure.csv"


def test_of_a_recorded_run_the_finished_sequences_count_and_store_what_they_held():
    path = max(TRACES, key=lambda trace: trace.stat().st_size)
    sample = read_lengths(str(path))
    held = []
    with TraceReader(path) as trace:
        state = PoolState(trace.header)

        def before(event):
            if isinstance(event, SequenceFinished):
                held.append(state.sequences[event.sequence].computed)

        for record in trace:
            state.apply(record, *([before] if isinstance(record, Step) else []))
    assert len(held) > 10
    assert sample.totals == held


def test_longer_sequences_than_max_model_len_are_left_out_and_counted():
    sample = Sample("three", (Lengths(1, 9), Lengths(5, 6), Lengths(2, 8)))
    kept = sample.up_to(10)
    assert (kept.totals, kept.left_out) == ([10, 10], 1)
    with pytest.raises(ConfigError, match="none of the 3 lengths"):
        sample.up_to(9)


def test_within_keeps_the_first_sequences_and_at_least_one():
    sample = Sample("three", (Lengths(1, 9), Lengths(5, 6), Lengths(2, 8)))
    assert sample.within(31).totals == [10, 11, 10]
    assert sample.within(30).totals == [10, 11]
    assert sample.within(1).totals == [10]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * 300, "is neither a file nor a way to draw lengths"),
        ("nowhere.csv", "is neither a file nor a way to draw lengths"),
        ("fixed:100", "write it like fixed:100,400"),
        ("fixed:0,4", "write it like fixed:100,400"),
        ("uniform:5-2,1-2", "write it like uniform:16-512,16-1024"),
        ("uniform:5,1-2", "write it like uniform:16-512,16-1024"),
        ("lognormal:161,338", "write it like lognormal:161,338,1.0"),
        ("lognormal:161,338,nan", "write it like lognormal:161,338,1.0"),
        ("lognormal:0,338,1", "write it like lognormal:161,338,1.0"),
    ],
)
def test_what_is_no_way_to_draw_is_refused_with_the_right_form(text, words):
    with pytest.raises(ConfigError) as caught:
        read_lengths(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_lengths_at_all_are_refused():
    with pytest.raises(ConfigError, match="count is 0"):
        read_lengths("sample", 0)


ROWS = (
    '[{"context":256,"batch":1,"block size":16,"contiguous":10,"paged":12,"paged / contiguous":1.2},'
    '{"context":256,"batch":8,"block size":16,"contiguous":10,"paged":18,"paged / contiguous":1.8},'
    '{"context":512,"batch":8,"block size":16,"contiguous":10,"paged":13,"paged / contiguous":1.3}]'
)


def test_times_of_attention_are_the_median_over_shapes(tmp_path):
    path = tmp_path / "attention.json"
    path.write_text(ROWS)
    measured = read_attention(path)
    ratio = measured.ratio(16)
    assert (ratio.median, ratio.least, ratio.most, ratio.shapes) == (1.3, 1.2, 1.8, 3)
    assert measured.ratio(8) is None
    assert "does not tell" in measured.origin
    path.write_text(f'{{"device":"CPU","date":"2026-01-02","rows":{ROWS}}}')
    assert read_attention(path).origin == "CPU, 2026-01-02"
    assert read_attention(path).rows == measured.rows


def test_the_shipped_times_tell_what_they_were_measured_on_and_cover_the_sweep():
    measured = read_attention(Path(__file__).parents[2] / "demo_data" / "attention-cpu.json")
    assert all(getattr(measured, field) for field in measured.__struct_fields__)
    assert measured.device.startswith("CPU")
    for block_size in (1, 8, 16, 32, 128):
        assert measured.ratio(block_size).shapes == 6


@pytest.mark.parametrize("content", [None, "[", '{"rows":[{"batch":1}]}', "[1]"])
def test_a_file_without_times_is_one_line(tmp_path, content):
    path = tmp_path / "attention.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_attention(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
