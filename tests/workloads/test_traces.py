"""Public traces are read as requests; a file that is not what it should be is refused by line."""

import gzip
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
        (AZURE + "2023-11-16 18:15:46,1_000,1\n", 2, "ContextTokens is '1_000'"),
        (AZURE + "2023-11-16 18:15:46,\x1c374,1\n", 2, r"ContextTokens is '\x1c374'"),
        (
            AZURE + "2023-11-16 18:15:46,1e30,1\n",
            2,
            "ContextTokens is '1e30'; it is a whole number",
        ),
        (
            AZURE + f"2023-11-16 18:15:46,{10**20},1\n",
            2,
            "ContextTokens is '100000000000000000000'",
        ),
        (AZURE + f"2023-11-16 18:15:46,{'9' * 9999},1\n", 2, "ContextTokens is '9999"),
        (AZURE + "2023-11-16 18:15:46,1,10000001\n", 2, "from 0 to 10,000,000"),
        (AZURE + "2023-11-16 18:15:46,1\n", 2, "2 values under 3 columns: mend or delete the line"),
        (
            AZURE + '2023-11-16 18:15:46,1,1\n"2023\n11",1,1\n',
            4,
            r"TIMESTAMP is '2023\n11', no time",
        ),
        (AZURE + f"{'x' * 200_000},1,1\n", 2, "it cannot be read as CSV (field larger than"),
        (
            AZURE + "2023-11-16 18:15:46,1,1\r\nx,1,1\r\n",
            3,
            "TIMESTAMP is 'x', no time: write it like 20",
        ),
        (BURST + "1e300,ChatGPT,7,1,8,API log\n", 2, "Timestamp is '1e300', no time"),
        (
            BURST + "5,ChatGPT,7,1,8,x\n3.5,ChatGPT,7,1,8,x\n",
            3,
            "its time is 1.5 s before the line",
        ),
        (AZURE + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n", 3, "before the line above"),
        (BURST + "nan,ChatGPT,7,1,8,API log\n", 2, "Timestamp is 'nan'"),
        (AZURE.encode() + b"2023-11-16 18:15:46,1,1\n\xff\n", 3, "not UTF-8"),
        ("time,tokens\n1,2\n", 1, "no header of a known trace"),
        ("", 1, "'' is no header of a known trace"),
        ("x" * 9999, 1, "xxx…' is no header of a known trace"),
        ('{"timestamp": 1e300, "input_length": 1, "output_length": 1}', 1, "timestamp is 1e+300"),
        ('{"timestamp": 1, "input_length": 99999999999, "output_length": 1}', 1, "'99999999999'"),
        (
            '{"timestamp": NaN, "input_length": 1, "output_length": 1}',
            1,
            "is no request of Mooncake",
        ),
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
    assert len(str(error.value)) < len(str(path)) + 350


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


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_bom_line_ends_and_quotation_marks_do_not_matter(trace, start, end, quote):
    rows = (AZURE.strip(), "2023-11-16 18:15:46,374,44", "2023-11-16 18:15:47,396,109")
    lines = [",".join(f"{quote}{cell}{quote}" for cell in row.split(",")) for row in rows]
    path = trace(start + end.join(lines) + end)
    assert list(read_trace(path)) == [WorkloadRequest(0, 374, 44), WorkloadRequest(1, 396, 109)]


NUMBERS = [
    "0",
    "-1",
    "-0",
    "+3",
    "12",
    "",
    " 7 ",
    "nan",
    "inf",
    "-inf",
    "1e30",
    "1e400",
    "9" * 5000,
]
NUMBERS += [
    "1_0",
    "٣",
    "0x10",
    "1.5",
    "true",
    "null",
    "text",
    '"',
    '"12"',
    "\0",
    "\u2028",
    "{",
    "1,2",
]
TIMES = [*NUMBERS, "2023-11-16 18:15:46", "0001-01-01", "9999-12-31T23:59:59.999999-23:59"]
TIMES += ["2023-02-30 00:00:00", "20231116T181546Z", "0001-01-01T00:00:00+23:59"]


@st.composite
def trace_bytes(draw):
    """A file of a known kind with cells, line ends and bytes that nobody should have put there."""
    kind = draw(st.sampled_from(["azure", "burstgpt", "mooncake"]))
    number, time = st.sampled_from(NUMBERS), st.sampled_from(TIMES)
    lines = []
    for _ in range(draw(st.integers(0, 4))):
        if kind == "azure":
            lines.append(f"{draw(time)},{draw(number)},{draw(number)}")
        elif kind == "burstgpt":
            lines.append(f"{draw(time)},m,{draw(number)},{draw(number)},{draw(number)},log")
        else:
            keys = '{{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [{}]}}'
            lines.append(keys.format(*(draw(number) for _ in range(4))))
    header = {"azure": AZURE.strip(), "burstgpt": BURST.strip(), "mooncake": None}[kind]
    header = draw(st.sampled_from([header, header, header, None, header and header[1:]]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    text = draw(st.sampled_from(["", "\ufeff"])) + end.join([*([header] if header else []), *lines])
    data = text.encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-16"])))
    at = draw(st.integers(0, len(data)))
    data = data[:at] + draw(st.one_of(st.just(b""), st.binary(max_size=4))) + data[at:]
    return gzip.compress(data) if draw(st.integers(0, 9)) == 0 else data


@settings(deadline=None, max_examples=400)
@given(data=trace_bytes())
def test_any_file_is_read_soundly_or_refused_in_one_line_with_its_name(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any file"
    path.write_bytes(data)
    try:
        requests = list(read_trace(path))
    except WorkloadError as error:
        told = str(error)
        assert re.fullmatch(rf"{re.escape(str(path))}(, line \d+:| has no requests:) .+", told), (
            told
        )
        assert told.isprintable(), told
        assert len(told) < len(str(path)) + 350
        return
    arrivals = [request.arrival for request in requests]
    assert arrivals == sorted(arrivals)
    for request in requests:
        assert 0 <= request.arrival <= 2e12
        assert 1 <= request.prompt_tokens <= 10_000_000
        assert 1 <= request.output_tokens <= 10_000_000


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
