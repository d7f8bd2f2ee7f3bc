"""Bodies have the asked length, differ, and share what a trace says they share."""

import json
from itertools import takewhile

import pytest

from engine.bench.serve_prompts import WORDS, Endpoint, Prompts
from engine.workloads.request import WorkloadRequest


def body(number: int = 0, ignore_eos: bool = False, seed: int = 0, chat: bool = False, **request):
    endpoint = Endpoint.CHAT if chat else Endpoint.COMPLETIONS
    asked = WorkloadRequest(**{"arrival": 0, "prompt_tokens": 500, "output_tokens": 9, **request})
    return json.loads(Prompts(endpoint, "m", ignore_eos, seed).body(number, asked))


def test_a_completion_is_asked_with_so_many_token_ids_that_every_vocabulary_has():
    prompt = body()["prompt"]
    assert len(prompt) == 500
    assert min(prompt) >= 128
    assert max(prompt) <= 255
    assert len(set(prompt)) > 100


def test_chat_is_asked_with_so_many_words():
    (message,) = body(chat=True)["messages"]
    assert message["role"] == "user"
    words = message["content"].split(" ")
    assert len(words) == 500
    assert set(words) <= set(WORDS)


def test_a_stream_with_usage_and_so_many_tokens_is_asked_for():
    for chat in (False, True):
        asked = body(chat=chat)
        assert asked["stream"] is True
        assert asked["stream_options"] == {"include_usage": True}
        assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("m", 9, 0)


def test_several_answers_are_drawn_by_a_seed_of_their_own():
    asked = body(7, n=4)
    assert (asked["n"], asked["temperature"], asked["seed"]) == (4, 1, 7)
    assert not {"n", "seed"} & set(body(7))


def test_ignore_eos_is_sent_where_asked_for_only():
    assert body(ignore_eos=True)["ignore_eos"] is True
    assert "ignore_eos" not in body()


def test_prompts_are_the_same_for_a_seed_and_share_no_beginning_otherwise():
    assert body(1) == body(1)
    for other in (body(2), body(1, seed=1)):
        assert shared(body(1), other) < 5


def shared(a: dict, b: dict) -> int:
    """How many tokens two prompts have in common from their beginning."""
    pairs = zip(a["prompt"], b["prompt"], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_equal_block_names_are_equal_tokens_whoever_sends_them():
    one = body(0, prefix_ids=(4, 9), prefix_block_tokens=200)
    assert 400 <= shared(one, body(1, prefix_ids=(4, 9), prefix_block_tokens=200)) < 405
    assert 200 <= shared(one, body(1, prefix_ids=(4, 8), prefix_block_tokens=200)) < 205
    assert shared(one, body(1, prefix_ids=(3, 9), prefix_block_tokens=200)) < 5
    assert (
        one["prompt"][200:400] == body(2, prefix_ids=(9,), prefix_block_tokens=200)["prompt"][:200]
    )


@pytest.mark.parametrize("tokens", [1, 199, 200, 201, 600, 700])
def test_the_length_is_exact_whatever_the_blocks(tokens):
    asked = body(prompt_tokens=tokens, prefix_ids=(1, 2, 3), prefix_block_tokens=200)
    assert len(asked["prompt"]) == tokens
