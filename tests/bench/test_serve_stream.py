"""What is read from a streamed answer, and when; times are given, so figures are exact."""

import json

import pytest

from engine.bench.serve_stream import StreamReading, error_message


def event(chunk: dict) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def text(text: str, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"text": text, "finish_reason": finish_reason}]})


def delta(**delta: str | None) -> bytes:
    return event({"choices": [{"delta": delta, "finish_reason": None}]})


DONE = b"data: [DONE]\n\n"
USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


def read(*pieces: tuple[float, bytes]) -> StreamReading:
    reading = StreamReading()
    for now, data in pieces:
        reading.feed(data, now)
    return reading


def test_gaps_lie_between_content_chunks():
    reading = read((10, text("a")), (10.5, text("b")), (12.5, text("c")), (20, USAGE + DONE))
    assert (reading.first, reading.last, reading.gaps) == (10, 12.5, [0.5, 2])
    assert reading.fault() is None


def test_a_chunk_of_several_tokens_is_one_gap_and_chunks_of_one_read_have_none():
    reading = read((1, text("a")), (2, text("b c d e")), (4, text("f") + text("g")))
    assert reading.gaps == [1, 2, 0]


def test_the_first_token_is_the_first_chunk_with_text():
    role = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    reading = read((1, role), (2, delta(content=None)), (3, text("")), (4, delta(content="a")))
    assert (reading.first, reading.gaps) == (4, [])


def choice(index: int, text: str, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": index, "text": text, "finish_reason": finish_reason}]})


def test_gaps_lie_between_chunks_of_one_choice():
    reading = StreamReading(n=2)
    for now, data in ((1, choice(0, "a")), (2, choice(1, "b")), (5, choice(0, "c"))):
        reading.feed(data, now)
    assert (reading.first, reading.last, reading.gaps, reading.chunks) == (1, 5, [4], 3)


def test_an_answer_is_whole_when_each_of_its_choices_has_ended():
    reading = StreamReading(n=2)
    reading.feed(choice(0, "a", "length") + choice(0, "", "length"), 1)
    assert "ended without" in reading.fault()
    reading.feed(choice(1, "", "length"), 2)
    assert reading.fault() is None


def test_a_chunk_may_have_several_choices():
    both = {"choices": [{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]}
    reading = StreamReading(n=2)
    reading.feed(event(both) + event(both), 1)
    assert (reading.chunks, reading.gaps) == (4, [0, 0])


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_content(name):
    assert read((1, delta(**{name: "hm"})), (3, delta(content="a"))).gaps == [2]


def test_where_the_network_cuts_the_stream_does_not_matter():
    stream = text("a") + text("é") + USAGE + DONE
    for cut in range(len(stream) + 1):
        reading = read((1, stream[:cut]), (1, stream[cut:]))
        assert (reading.first, reading.gaps, reading.output_tokens) == (1, [0], 3)
        assert reading.fault() is None


def test_comments_other_fields_and_carriage_returns_are_no_content():
    stream = b": keep-alive\r\n\r\nevent: message\r\nid: 1\r\n" + text("a").replace(b"\n", b"\r\n")
    reading = read((1, stream), (2, b"data:" + text("b")[6:] + DONE.replace(b"\n", b"\r\n")))
    assert reading.gaps == [1]
    assert reading.fault() is None


def test_tokens_are_the_usages_and_unknown_without():
    assert (read((1, text("a") + USAGE)).prompt_tokens, read((1, USAGE)).output_tokens) == (7, 3)
    assert read((1, text("a") + DONE)).output_tokens is None


def test_a_null_usage_beside_content_says_nothing():
    beside = event({"choices": [{"text": "a"}], "usage": None})
    assert read((1, USAGE + beside)).output_tokens == 3


def test_an_answer_without_its_end_is_not_whole():
    assert "ended without" in read((1, text("a"))).fault()
    assert read((1, text("a")), (2, text("", "length"))).fault() is None
    assert read((1, text("a")), (2, DONE)).fault() is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (event({"error": {"message": "out of\nmemory", "code": 500}}), "out of memory"),
        (b"data: {oops\n\n", "not valid: JSON is malformed"),
        (event({"choices": [{"text": 5}]}), "not valid: Expected `str | null`, got `int`"),
        (b'data: {"choices": [{"text": "\xff"}]}\n\n', "not valid"),
    ],
)
def test_a_fault_in_the_stream_is_told_although_it_goes_on_to_its_end(data, words):
    assert words in read((1, text("a")), (2, data), (3, DONE)).fault()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "too\\n long", "type": "x"}}', "too long"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"message": "no"}', "no"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b"<html>\n bad gateway", "<html> bad gateway"),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (b"x" * 999, "x" * 200),
        (b"", "an error without a message"),
    ],
)
def test_an_errors_message_is_one_line_whatever_its_body(body, message):
    assert error_message(body) == message
