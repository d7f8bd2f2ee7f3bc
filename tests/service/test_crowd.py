"""Hundreds of streams on a small pool: all finish, each as if it were alone; those that leave free it."""

import asyncio
import json

import httpx
import pytest

from tests.servers import EngineServer, wait_until

CLIENTS = 200
KILLED = 50
BODY = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, "logprobs": 0}
LEAVER = {**BODY, "max_tokens": 300}
"""So much that a client which leaves early leaves before the end, on a busy machine too."""


@pytest.fixture(scope="module")
def server(tiny_model):
    """float64, so that the batch cannot turn a tie; a pool for a dozen of the 200."""
    options = ("--dtype", "float64", "--num-gpu-blocks-override", "40", "--max-num-seqs", "32")
    with EngineServer("--model", str(tiny_model), *options) as server:
        yield server


def prompt(number: int) -> str:
    return f"Client {number} asks {'again and ' * (number % 7)}for more"


class Stream:
    """One client of a stream: the tokens it got, whether it saw the end."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.text = ""
        self.finished = self.done = False

    async def read(self, http: httpx.AsyncClient, number: int, leave_after: int | None) -> None:
        asked = BODY if leave_after is None else LEAVER
        body = {"prompt": prompt(number), "stream": True, **asked}
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    self.done = True
                elif line:
                    (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                    assert not self.finished, "nothing follows the end"
                    self.text += choice["text"]
                    self.tokens += choice["logprobs"]["tokens"]
                    self.finished = choice["finish_reason"] is not None
                if leave_after is not None and len(self.tokens) >= leave_after:
                    return


async def crowd(server: EngineServer, leavers: set[int]) -> list[Stream]:
    streams = [Stream() for _ in range(CLIENTS)]
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as http:
        async with asyncio.timeout(200):
            await asyncio.gather(
                *(
                    stream.read(http, number, 3 + number % 9 if number in leavers else None)
                    for number, stream in enumerate(streams)
                )
            )
    return streams


def metric(server: EngineServer, name: str) -> float:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    (value,) = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"glasspool_{name} ")]
    return float(value)


def test_200_streams_finish_as_if_alone_and_50_that_leave_free_their_blocks(server):
    alone = {}
    for number in range(0, CLIENTS, 10):
        choice = server.complete(prompt(number), **BODY).json()["choices"][0]
        alone[number] = (choice["text"], choice["logprobs"]["tokens"])
    leavers = {number for number in range(CLIENTS) if number % 4 == 1}
    assert len(leavers) == KILLED
    streams = asyncio.run(crowd(server, leavers))
    for number, stream in enumerate(streams):
        if number in leavers:
            assert not stream.done
        else:
            assert stream.done, f"stream {number} hung or was cut"
            assert len(stream.tokens) == BODY["max_tokens"], "each token once"
    assert metric(server, 'preemptions_total{reason="no_free_block"}') > 0, "the pool was small"
    for number, expected in alone.items():
        assert (streams[number].text, streams[number].tokens) == expected
    wait_until(lambda: metric(server, 'blocks{state="active"}') == 0, 20, "all blocks came back")
    assert (
        metric(server, 'requests{state="running"}')
        == metric(server, 'requests{state="waiting"}')
        == 0
    )
    assert metric(server, 'requests_finished_total{reason="abort"}') == KILLED
    pool = httpx.get(f"{server.url}/v1/pool").json()
    assert pool["free"] + pool["cached"] == pool["num_blocks"] == 40


def test_a_full_queue_refuses_with_a_time_to_come_back(tiny_model):
    options = ("--max-num-seqs", "1", "--max-num-queued-reqs", "2")

    async def run(server: EngineServer) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            body = {"prompt": "x", "max_tokens": 64, "ignore_eos": True}
            return await asyncio.gather(
                *(http.post("/v1/completions", json=body) for _ in range(12))
            )

    with EngineServer("--model", str(tiny_model), *options) as server:
        answers = asyncio.run(run(server))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(answers) - len(refused) >= 2
    assert refused
    for answer in refused:
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert "max_num_queued_reqs" in answer.json()["error"]["message"]
