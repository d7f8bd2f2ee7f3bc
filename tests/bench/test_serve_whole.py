"""What is read from an answer that comes in one piece."""

import json

import pytest

from engine.bench.serve_whole import WholeReading

USAGE = {"prompt_tokens": 7, "completion_tokens": 12}


def choices(count: int) -> list[dict]:
    return [{"index": index, "text": "", "finish_reason": "length"} for index in range(count)]


def read(n: int, body: object) -> tuple[WholeReading, str | None]:
    reading = WholeReading(n)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reading.feed(data[:5], 1)
    reading.feed(data[5:], 2)
    return reading, reading.fault()


def test_tokens_are_the_usages_and_unknown_without():
    reading, fault = read(2, {"choices": choices(2), "usage": USAGE})
    assert (reading.prompt_tokens, reading.output_tokens, fault) == (7, 12, None)
    for without in ({}, {"usage": None}):
        reading, fault = read(2, {"choices": choices(2), **without})
        assert (reading.prompt_tokens, reading.output_tokens, fault) == (None, None, None)


def test_of_its_tokens_times_nothing_is_known():
    reading, _ = read(1, {"choices": choices(1), "usage": USAGE})
    assert reading.first is reading.last is reading.chunks is None


def test_a_chat_answer_is_read_alike():
    message = {
        "index": 0,
        "message": {"role": "assistant", "content": "a"},
        "finish_reason": "stop",
    }
    assert read(1, {"choices": [message], "usage": USAGE})[1] is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"choices": choices(2), "usage": USAGE}, "2 of 3 choices"),
        ({"choices": [*choices(2), {"text": "a"}]}, "2 of 3 choices"),
        ({"usage": USAGE}, "0 of 3 choices"),
        ({"error": {"message": "out of\nmemory", "code": 500}}, "out of memory"),
        (b'{"choices": [', "not valid: Input data was truncated"),
        (b'{"choices": 5}', "not valid: Expected"),
        (b'{"choices": [{"finish_reason": "\xff"}]}', "not valid"),
        (b"", "not valid"),
    ],
)
def test_what_is_no_whole_answer_is_told_in_one_line(body, words):
    _, fault = read(3, body)
    assert words in fault
    assert "\n" not in fault
