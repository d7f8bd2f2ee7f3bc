"""The official client against a started server: both routes, whole and streamed."""

from types import SimpleNamespace

import openai
import pytest

from tests.servers import EngineServer

GREEDY = {"temperature": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def client(engine_server):
    with openai.OpenAI(base_url=f"{engine_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(client):
    (served,) = client.models.list()
    return client.models.retrieve(served.id).id


def ask_text(client, model, **options):
    return client.completions.create(model=model, prompt="Hello", **options)


def ask_chat(client, model, **options):
    messages = [{"role": "user", "content": "Hello"}]
    return client.chat.completions.create(model=model, messages=messages, **options)


ROUTES = {
    "completions": SimpleNamespace(
        ask=ask_text, whole=lambda c: c.text, piece=lambda c: c.text, logprobs={"logprobs": 2}
    ),
    "chat": SimpleNamespace(
        ask=ask_chat,
        whole=lambda c: c.message.content,
        piece=lambda c: c.delta.content or "",
        logprobs={"logprobs": True, "top_logprobs": 2},
    ),
}


@pytest.fixture(params=ROUTES)
def route(request):
    return ROUTES[request.param]


def joined(route, stream) -> tuple[dict[int, str], dict[int, str], object]:
    """Texts and finish reasons by choice, and the usage, of a stream."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    usage = None
    for chunk in stream:
        assert usage is None, "the usage comes last"
        usage = chunk.usage
        for choice in chunk.choices:
            assert choice.index not in reasons, "nothing follows a finish reason"
            texts[choice.index] = texts.get(choice.index, "") + route.piece(choice)
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    return texts, reasons, usage


def test_a_stream_joins_to_the_whole_text(client, model, route):
    whole = route.ask(client, model, max_tokens=24, **GREEDY)
    stream = route.ask(
        client, model, max_tokens=24, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    texts, reasons, usage = joined(route, stream)
    assert texts == {0: route.whole(whole.choices[0])}
    assert reasons == {0: whole.choices[0].finish_reason} == {0: "length"}
    assert usage == whole.usage
    assert usage.completion_tokens == 24


def test_no_usage_comes_unasked(client, model, route):
    stream = route.ask(client, model, max_tokens=3, stream=True, **GREEDY)
    assert joined(route, stream)[2] is None


def test_four_completions_of_a_seed_are_the_same_streamed_and_whole(client, model, route):
    options = {"n": 4, "seed": 7, "max_tokens": 12, "extra_body": {"ignore_eos": True}}
    whole = [route.whole(c) for c in route.ask(client, model, **options).choices]
    texts, reasons, _ = joined(route, route.ask(client, model, stream=True, **options))
    assert [texts[index] for index in range(4)] == whole
    assert len(set(whole)) == 4
    assert set(reasons.values()) == {"length"}
    other = route.ask(client, model, **{**options, "seed": 8})
    assert [route.whole(c) for c in other.choices] != whole


def test_a_stop_string_never_shows_in_a_stream(client, model, route):
    text = route.whole(route.ask(client, model, max_tokens=40, **GREEDY).choices[0])
    stop = text[12:15]
    stream = route.ask(client, model, max_tokens=40, stop=stop, stream=True, **GREEDY)
    texts, reasons, _ = joined(route, stream)
    assert texts == {0: text[: text.index(stop)]}
    assert reasons == {0: "stop"}


def test_streamed_logprobs_are_those_of_the_whole_answer(client, model):
    route = ROUTES["completions"]
    options = {"max_tokens": 6, **route.logprobs, **GREEDY}
    whole = route.ask(client, model, **options).choices[0].logprobs
    chunks = [
        c for chunk in route.ask(client, model, stream=True, **options) for c in chunk.choices
    ]
    for part in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [value for c in chunks for value in getattr(c.logprobs, part)]
        assert streamed == getattr(whole, part)
    assert len(whole.tokens) == 6
    assert whole.token_logprobs == [max(top.values()) for top in whole.top_logprobs]


def test_chat_logprobs_tell_each_token_and_the_best(client, model):
    route = ROUTES["chat"]
    options = {"max_tokens": 6, **route.logprobs, **GREEDY}
    whole = route.ask(client, model, **options).choices[0].logprobs.content
    stream = route.ask(client, model, stream=True, **options)
    streamed = [t for chunk in stream for c in chunk.choices for t in c.logprobs.content]
    assert streamed == whole
    for token in whole:
        assert token.top_logprobs[0].token == token.token
        assert len(token.top_logprobs) == 2
        assert token.bytes is None or bytes(token.bytes).decode() == token.token


def test_echo_begins_with_the_prompt_and_its_likelihoods(client, model):
    options = {"echo": True, "logprobs": 1, "max_tokens": 3, **GREEDY}
    choice = ask_text(client, model, **options).choices[0]
    plain = ask_text(client, model, max_tokens=3, **GREEDY).choices[0]
    assert choice.text == "Hello" + plain.text
    told = choice.logprobs
    assert told.tokens[:5] == list("Hello")
    assert told.token_logprobs[0] is None
    assert all(logprob < 0 for logprob in told.token_logprobs[1:])
    assert len(told.tokens) == len(told.top_logprobs) == 5 + 3
    assert told.text_offset[:6] == [0, 1, 2, 3, 4, 5]
    chunks = list(ask_text(client, model, stream=True, **options))
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == choice.text
    streamed = [p for chunk in chunks for c in chunk.choices for p in c.logprobs.token_logprobs]
    assert streamed == told.token_logprobs


def test_a_list_of_prompts_is_answered_in_order(client, model):
    prompts = ["Hello", "Other", "Hello"]
    many = client.completions.create(model=model, prompt=prompts, n=2, max_tokens=8, **GREEDY)
    assert [c.index for c in many.choices] == list(range(6))
    texts = [c.text for c in many.choices]
    assert texts[0] == texts[1] == texts[4] == texts[5]
    assert texts[2] == texts[3]
    alone = client.completions.create(model=model, prompt="Other", max_tokens=8, **GREEDY)
    assert alone.choices[0].text == texts[2]
    assert many.usage.prompt_tokens == 15
    assert many.usage.completion_tokens == 6 * 8
    ids = client.completions.create(
        model=model, prompt=[[1, 2], [3]], max_tokens=2, stream=True,
        stream_options={"include_usage": True}, **GREEDY,
    )  # fmt: skip
    texts, _, usage = joined(ROUTES["completions"], ids)
    assert set(texts) == {0, 1}
    assert usage.prompt_tokens == 3


def test_the_chat_template_makes_the_prompt(client, model):
    answer = ask_chat(client, model, max_tokens=4, **GREEDY)
    # A token a letter.
    assert answer.usage.prompt_tokens == len("<|260|>user:Hello<|261|><|260|>")
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    same = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": parts}], max_tokens=4, **GREEDY
    )
    assert same.choices[0].message.content == answer.choices[0].message.content


def test_chat_without_a_limit_goes_on_as_far_as_there_is_room(client, model):
    answer = ask_chat(client, model, **GREEDY)
    # The pool has 24 blocks of 16, and the last token needs no slot.
    assert answer.usage.total_tokens == 24 * 16 + 1


def test_a_request_is_found_by_the_id_that_its_client_chose(client, model):
    raw = client.completions.with_raw_response.create(
        model=model, prompt="Hello", max_tokens=1, extra_body={"request_id": "find-me:1"}
    )
    assert raw.headers["x-request-id"] == raw.parse().id == "find-me:1"


@pytest.mark.parametrize(
    ("options", "error", "param", "words"),
    [
        ({"model": "gpt-99"}, openai.NotFoundError, "model", "gpt-99 is not served"),
        ({"temperature": 1e6}, openai.BadRequestError, "temperature", "temperature is"),
        ({"max_tokens": 10**9}, openai.BadRequestError, "max_tokens", "max_model_len 512"),
        ({"n": 10**9}, openai.BadRequestError, "n", "max_num_seqs"),
        ({"extra_body": {"tools": [{}]}}, openai.BadRequestError, "tools", "not supported"),
        ({"extra_body": {"response_format": {"type": "json_object"}}}, openai.BadRequestError,
         "response_format", "not supported"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_those_that_the_client_knows(
    client, model, route, stream, options, error, param, words
):
    options = {"model": model, "max_tokens": 4, "stream": stream, **options}
    with pytest.raises(error) as caught:
        route.ask(client, options.pop("model"), **options)
    assert caught.value.param == param
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "messages"),
        ([{"role": "tool", "content": "x"}], "messages[0].role is not valid"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
         "only parts with type text"),
        ([{"role": "user", "content": "a", "tool_calls": []}], "messages[0].tool_calls is not supported"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "roles must alternate"),
    ],
)  # fmt: skip
def test_messages_that_cannot_be_are_refused_by_place(client, model, messages, words):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=messages, max_tokens=4)
    assert caught.value.param == "messages"
    assert words in caught.value.message


def test_what_asks_for_nothing_is_no_reason_to_refuse(client, model):
    nothing = {"tools": [], "response_format": {"type": "text"}, "store": False, "user": "somebody"}
    answer = ask_chat(client, model, max_tokens=1, logit_bias=None, extra_body=nothing)
    assert answer.usage.completion_tokens == 1
    answer = ask_text(client, model, max_tokens=1, best_of=1, suffix=None, logprobs=None)
    assert answer.usage.completion_tokens == 1


def test_a_model_without_a_chat_template_says_where_to_go(tiny_model, tmp_path):
    import shutil

    folder = tmp_path / "plain"
    shutil.copytree(tiny_model, folder)
    (folder / "chat_template.jinja").unlink()
    with EngineServer("--model", str(folder), "--num-gpu-blocks-override", "24") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.BadRequestError, match="use /v1/completions"):
            ask_chat(client, str(folder), max_tokens=1)
