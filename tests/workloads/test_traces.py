"""Public traces are read as requests; a file that is not what it should be is refused by line."""

import re
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.workloads.request import WorkloadError, WorkloadRequest
from engine.workloads.traces import read_trace

DATA = Path(__file__).parents[2] / "../shared/data"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.fixture
def trace(tmp_path):
    """Writes text (or bytes) to a file and returns its path."""

    def write(content: str | bytes) -> Path:
        path = tmp_path / "trace"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_azure_rows_arrive_at_seconds_from_the_first(trace):
    path = trace(
        AZURE + "2023-11-16 23:59:59.5000000,374,44\n2023-11-17 00:00:01.7500000,396,109\n\n"
    )
    assert list(read_trace(path)) == [WorkloadRequest(0, 374, 44), WorkloadRequest(2.25, 396, 109)]


def test_azure_rows_of_2024_carry_a_time_zone(trace):
    path = trace(
        AZURE + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01.009930+00:00,2,6\n"
    )
    assert [request.arrival for request in read_trace(path)] == pytest.approx([0, 1])


def test_no_arrival_jumps_with_the_local_summer_time(trace, monkeypatch):
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        path = trace(AZURE + "2023-03-26 01:59:59.0,1,1\n2023-03-26 03:00:01.0,1,1\n")
        assert [request.arrival for request in read_trace(path)] == [0, 3602]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_burstgpt_columns_are_found_by_name(trace):
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens"
    path = trace(header + "\n5,a,1,GPT-4,472,18,490\n45.5,a,1,ChatGPT,1087,230,1317\n")
    assert list(read_trace(path)) == [
        WorkloadRequest(0, 472, 18),
        WorkloadRequest(40.5, 1087, 230),
    ]


def test_failed_requests_of_burstgpt_are_left_out_without_moving_the_clock(trace):
    path = trace(BURST + "5,ChatGPT,7,0,7,API log\n8,ChatGPT,9,2,11,API log\n")
    assert list(read_trace(path)) == [WorkloadRequest(3, 9, 2)]


def test_mooncake_lines_name_the_blocks_of_the_prompt(trace):
    path = trace(
        '{"timestamp": 1000, "input_length": 600, "output_length": 5, "hash_ids": [0, 7]}\n'
        '{"timestamp": 4500, "input_length": 10, "output_length": 1, "hash_ids": [0]}\n'
    )
    assert list(read_trace(path)) == [
        WorkloadRequest(0, 600, 5, (0, 7), 512),
        WorkloadRequest(3.5, 10, 1, (0,), 512),
    ]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (AZURE + "2023-11-16 18:15:46,1,1\nyesterday,1,1\n", 3, "TIMESTAMP is 'yesterday'"),
        (AZURE + "2023-11-16 18:15:46,many,1\n", 2, "ContextTokens is 'many'"),
        (AZURE + "2023-11-16 18:15:46,0,1\n", 2, "ContextTokens is '0'"),
        (AZURE + "2023-11-16 18:15:46,1,-1\n", 2, "GeneratedTokens is '-1'"),
        (AZURE + "2023-11-16 18:15:46,1\n", 2, "2 values under 3 columns"),
        (AZURE + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n", 3, "before the line above"),
        (BURST + "nan,ChatGPT,7,1,8,API log\n", 2, "Timestamp is 'nan'"),
        (AZURE.encode() + b"2023-11-16 18:15:46,1,1\n\xff\n", 3, "not UTF-8"),
        ("time,tokens\n1,2\n", 1, "no header of a known trace"),
        ("", 1, "no header of a known trace"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}\n{"time\n', 2, "malformed"),
        ('{"timestamp": 0, "output_length": 1}\n', 1, "input_length"),
        ('{"timestamp": "0", "input_length": 1, "output_length": 1}\n', 1, "timestamp"),
        ('{"timestamp": 0, "input_length": 0, "output_length": 1}\n', 1, "input_length is '0'"),
    ],
)
def test_a_malformed_line_is_refused_with_file_and_number(trace, content, line, words):
    path = trace(content)
    with pytest.raises(WorkloadError) as error:
        list(read_trace(path))
    assert str(error.value).startswith(f"{path}, line {line}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


VALID = {
    "azure": (AZURE, "2023-11-16 18:15:46.6805900,374,44"),
    "burstgpt": (BURST, "5,ChatGPT,472,18,490,Conversation log"),
    "mooncake": (
        "",
        '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 7]}',
    ),
}


@pytest.mark.parametrize("kind", VALID)
@settings(deadline=None)
@given(before=st.integers(0, 3), word=st.text("abcxyz-.{[ ", min_size=1))
def test_a_line_that_is_no_row_is_refused_with_its_number(tmp_path_factory, kind, before, word):
    assume(word.strip())
    header, row = VALID[kind]
    path = tmp_path_factory.getbasetemp() / f"no row of {kind}"
    path.write_text(header + f"{row}\n" * before + f"{word}\n{row}\n")
    line = bool(header) + before + 1
    if kind == "mooncake" and not before:
        assume(word.startswith("{"))  # else it is no Mooncake file, which is told of line 1 as well
    requests = read_trace(path)
    assert len(list(islice(requests, before))) == before
    with pytest.raises(WorkloadError, match=f"^{re.escape(str(path))}, line {line}: .+$"):
        next(requests)


@pytest.mark.parametrize("kind", VALID)
@settings(deadline=None)
@given(
    before=st.integers(0, 3),
    at=st.integers(0, 90),
    put=st.binary(max_size=3),
    cut=st.integers(0, 3),
)
def test_a_damaged_line_is_read_or_refused_with_a_number_never_a_traceback(
    tmp_path_factory, kind, before, at, put, cut
):
    header, row = VALID[kind]
    damaged = row.encode()[:at] + put + row.encode()[at + cut :]
    path = tmp_path_factory.getbasetemp() / f"damaged {kind}"
    path.write_bytes(f"{header}{row}\n".encode() + f"{row}\n".encode() * before + damaged + b"\n")
    try:
        assert len(list(read_trace(path))) >= 1
        return
    except WorkloadError as error:
        told = str(error)
    found = re.fullmatch(rf"{re.escape(str(path))}, line (\d+): .+", told)
    assert found, told
    # A quotation mark joins lines, and a damaged time is noticed in the next line.
    number = bool(header) + 1 + before + 1
    assert number <= int(found[1]) <= number + 3


def test_lines_before_a_malformed_one_are_read(trace):
    requests = read_trace(trace(AZURE + "2023-11-16 18:15:46,1,1\nbroken\n"))
    assert next(requests) == WorkloadRequest(0, 1, 1)
    with pytest.raises(WorkloadError, match="line 3"):
        next(requests)


def test_a_file_that_cannot_be_read_is_refused_by_name(trace, tmp_path):
    with pytest.raises(WorkloadError, match="missing: No such file"):
        list(read_trace(tmp_path / "missing"))
    with pytest.raises(WorkloadError, match="line 1: it is not UTF-8"):
        list(read_trace(trace(b"\x1f\x8b\x08\x00\xff\xfe")))
    with pytest.raises(WorkloadError, match="has no requests"):
        list(read_trace(trace(AZURE)))


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (DATA / name).exists(), reason=f"{name} is not here")


@needs("AzureLLMInferenceTrace_conv.csv")
def test_the_azure_conversation_trace_is_an_hour_of_19366_requests():
    requests = list(read_trace(DATA / "AzureLLMInferenceTrace_conv.csv"))
    assert len(requests) == 19366
    assert 3400 < requests[-1].arrival < 3600
    assert requests[0] == WorkloadRequest(0, 374, 44)


@needs("AzureLLMInferenceTrace_code.csv")
def test_the_azure_code_trace_is_an_hour_of_8819_requests():
    requests = list(read_trace(DATA / "AzureLLMInferenceTrace_code.csv"))
    assert len(requests) == 8819
    assert requests[-1].arrival < 3600
    assert all(later.arrival >= earlier.arrival for earlier, later in pairwise(requests))


@needs("mooncake_fast25_conversation_head2000.jsonl")
def test_each_mooncake_prompt_fills_the_blocks_it_names():
    requests = list(read_trace(DATA / "mooncake_fast25_conversation_head2000.jsonl"))
    assert len(requests) == 2000
    assert all(-(-r.prompt_tokens // 512) == len(r.prefix_ids) for r in requests)
    assert {request.prefix_ids[0] for request in islice(requests, 5)} == {0}
