"""POST /v1/completions of a started server."""

import concurrent.futures
import socket

import httpx
import pytest

from tests.servers import EngineServer, wait_until


def pool_is_idle(server: EngineServer) -> bool:
    metrics = httpx.get(f"{server.url}/metrics").text
    return 'glasspool_blocks{state="active"} 0.0' in metrics


def test_a_completion_has_the_openai_shape(engine_server):
    answer = engine_server.complete("Hello", max_tokens=5, ignore_eos=True, request_id="mine")
    body = answer.json()
    assert answer.status_code == 200
    assert (body["id"], body["object"]) == ("mine", "text_completion")
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, "length")


def test_n_completions_come_in_order_and_differ(engine_server):
    body = engine_server.complete("Hello", n=4, seed=1, max_tokens=12, ignore_eos=True).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert len({choice["text"] for choice in body["choices"]}) == 4


def test_beams_come_best_first(engine_server):
    body = engine_server.complete("Hello", n=3, use_beam_search=True, max_tokens=8).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert len({choice["text"] for choice in body["choices"]}) > 1


def test_logprobs_come_with_each_token_and_for_the_prompt(engine_server):
    body = engine_server.complete(
        "Hello", max_tokens=4, ignore_eos=True, temperature=0, logprobs=2, prompt_logprobs=1
    ).json()
    told = body["choices"][0]["logprobs"]
    assert len(told["tokens"]) == len(told["token_logprobs"]) == len(told["top_logprobs"]) == 4
    for logprob, top in zip(told["token_logprobs"], told["top_logprobs"], strict=True):
        assert logprob == max(top.values())
        assert len(top) <= 2
    first, *others = body["choices"][0]["prompt_logprobs"]
    assert first is None
    assert len(others) == 4
    assert all(token["rank"] >= 1 for told in others for token in told.values())


def test_a_stop_string_ends_the_text_before_it(engine_server):
    whole = engine_server.complete("Hello", max_tokens=40, seed=3, ignore_eos=True).json()
    text = whole["choices"][0]["text"]
    stop = text[10:13]
    body = engine_server.complete(
        "Hello", max_tokens=40, seed=3, ignore_eos=True, stop=["never seen", stop]
    ).json()
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["text"] == text[: text.index(stop)]


def test_a_seed_gives_the_same_text_alone_and_in_a_crowd(engine_server):
    def ask(seed: int) -> str:
        body = engine_server.complete(f"Question {seed}", seed=seed, max_tokens=20, ignore_eos=True)
        return body.json()["choices"][0]["text"]

    alone = [ask(seed) for seed in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == alone


def test_token_ids_are_a_prompt_too(engine_server):
    body = engine_server.complete([1, 2, 3], max_tokens=1).json()
    assert body["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"n": 0}, 400, "n", "n is 0"),
        ({"max_tokens": 0}, 400, "max_tokens", "max_tokens is 0"),
        ({"prompt": ""}, 400, "prompt", "empty"),
        ({"prompt": "x" * 600}, 400, "prompt", "max_model_len 512"),
        ({"prompt": "x" * 450}, 400, "prompt", "the whole pool has 24"),
        ({"prompt": [5, 4000]}, 400, "prompt", "token id 4000"),
        ({"prompt": [-1]}, 400, "prompt", "token id -1"),
        ({"prompt": {"a": 1}}, 400, "prompt", "a prompt is text"),
        ({"temperature": "warm"}, 400, "temperature", "not valid"),
        ({"temperature": 1e9}, 400, "temperature", "temperature is"),
        ({"best_of": 3}, 400, "best_of", "best_of is not supported"),
        ({"logit_bias": {"999999": 1}}, 400, "logit_bias", "token id 999999"),
        ({"logprobs": 99}, 400, "logprobs", "logprobs is 99"),
        ({"priority": 3}, 400, "priority", "first come, first served"),
        ({"use_beam_search": True, "top_k": 4}, 400, "top_k", "does not go with use_beam_search"),
        ({"n": 8, "use_beam_search": True, "max_tokens": 80}, 400, "prompt", "for each of 8 beams"),
        ({"stream": "often"}, 400, "stream", "not valid"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options", "add stream"),
        ({"stream": True, "use_beam_search": True}, 400, "stream", "leave one out"),
        ({"stream": True, "prompt_logprobs": 1}, 400, "prompt_logprobs", "leave one out"),
        ({"tools": [{"type": "function"}]}, 400, "tools", "tools is not supported"),
        ({"suffix": "end"}, 400, "suffix", "suffix is not supported"),
        ({"prompt": []}, 400, "prompt", "a prompt is text or a list of token ids"),
        ({"prompt": ["x", 5]}, 400, "prompt", "there may be a list of prompts"),
        ({"prompt": [[1, 2], [3, 4000]]}, 400, "prompt", "token id 4000"),
        ({"request_id": "two\r\nlines"}, 400, "request_id", "not valid"),
        ({"stop": ["a"] * 17}, 400, "stop", "not valid"),
        ({"stop": [""]}, 400, "stop", "not valid"),
        ({"seed": 2**64}, 400, "seed", "not valid"),
        ({"model": "gpt-99"}, 404, "model", "gpt-99 is not served"),
    ],
)
def test_bad_input_is_refused_by_name_and_harms_nobody(engine_server, body, status, param, words):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(
            engine_server.complete, "Other", max_tokens=40, temperature=0, ignore_eos=True
        )
        answer = engine_server.complete(**{"prompt": "x", **body})
        assert other.result().status_code == 200
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["param"] == param
    assert words in error["message"]
    assert "\n" not in error["message"]


def test_text_with_half_a_character_is_refused(engine_server):
    body = rb'{"prompt": "half \ud800"}'
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{engine_server.url}/v1/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert "half a surrogate pair at character 5" in answer.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'"text"'])
def test_a_body_that_is_no_object_is_a_400(engine_server, content):
    answer = httpx.post(f"{engine_server.url}/v1/completions", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_of_another_content_type_is_told_the_remedy(engine_server):
    answer = httpx.post(f"{engine_server.url}/v1/completions", data={"prompt": "x"})
    assert answer.status_code == 400
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


def test_an_unknown_path_and_method_are_json_errors(engine_server):
    assert httpx.get(f"{engine_server.url}/v2/nothing").json()["error"]["message"] == "Not Found"
    assert httpx.get(f"{engine_server.url}/v1/completions").status_code == 405


def test_a_client_that_goes_away_frees_its_blocks(engine_server):
    body = '{"prompt": "Hello", "n": 4, "max_tokens": 300, "ignore_eos": true}'
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", engine_server.port)) as connection:
        connection.sendall((head + body).encode())
        wait_until(lambda: not pool_is_idle(engine_server), 10, "the request runs")
    wait_until(lambda: pool_is_idle(engine_server), 10, "its blocks are free")


def test_health_and_models_name_the_model(engine_server, tiny_model):
    assert httpx.get(f"{engine_server.url}/health").json() == {
        "status": "ok",
        "model": str(tiny_model),
    }
    assert httpx.get(f"{engine_server.url}/v1/models").json()["data"][0]["id"] == str(tiny_model)


def test_the_start_up_log_says_what_the_pool_holds(engine_server):
    # 2 layers x K and V x 2 heads of 8 x 4 bytes
    for line in (
        "KV cache: 256 bytes per token, 4,096 bytes per block of 16 tokens",
        "KV cache: 24 blocks, 0.1 MiB in all",
        "KV cache: 384 cacheable tokens = 24 blocks x 16",
        "KV cache: room for 0.75 sequences of max_model_len 512",
    ):
        assert line in engine_server.output
