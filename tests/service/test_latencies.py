"""What the server measures is what its clients see; and what it logs is what happened."""

import asyncio
import json
import re
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.servers import EngineServer, wait_until

STREAMED = {"stream": True, "logprobs": 0, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def server(tiny_model):
    """Four run at once, so that others wait for them."""
    options = ("--num-gpu-blocks-override", "24", "--max-num-seqs", "4")
    with EngineServer("--model", str(tiny_model), *options) as server:
        server.complete("warm", max_tokens=2)
        yield server


def histogram(server, name: str) -> tuple[float, float]:
    """Number and sum of what was observed so far."""
    text = httpx.get(f"{server.url}/metrics").text
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }
    return samples[f"glasspool_{name}_count"], samples[f"glasspool_{name}_sum"]


def since(server, name: str, before: tuple[float, float]) -> tuple[float, float]:
    count, total = histogram(server, name)
    return count - before[0], total - before[1]


class Measured:
    """When the client of one streamed request saw what."""

    def __init__(self) -> None:
        self.tokens = []
        self.duration = 0.0

    async def run(self, http: httpx.AsyncClient, number: int, max_tokens: int) -> "Measured":
        body = {"prompt": f"Request {number}", "max_tokens": max_tokens, **STREAMED}
        started = time.monotonic()
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    # A client that lags behind gets several tokens in one chunk.
                    (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                    now = time.monotonic() - started
                    self.tokens += [now] * len(choice["logprobs"]["tokens"])
        self.duration = time.monotonic() - started
        return self


async def measured_side_by_side(server: EngineServer, clients: int) -> list[Measured]:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        await asyncio.gather(*(http.get("/health") for _ in range(clients)))
        return await asyncio.gather(
            *(Measured().run(http, number, 40) for number in range(clients))
        )


NAMES = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_duration_seconds",
    "queue_duration_seconds",
)


def test_latency_metrics_agree_with_what_the_clients_measured(server):
    before = {name: histogram(server, name) for name in NAMES}
    seen = asyncio.run(measured_side_by_side(server, 8))
    wait_until(lambda: histogram(server, NAMES[2])[0] == before[NAMES[2]][0] + 8)
    told = {name: since(server, name, before[name]) for name in NAMES}
    assert [len(client.tokens) for client in seen] == [40] * 8
    assert told["time_to_first_token_seconds"][0] == 8
    assert told["queue_duration_seconds"][0] == 8
    assert told["inter_token_latency_seconds"][0] == 8 * 39
    first = sum(client.tokens[0] for client in seen)
    between = sum(client.tokens[-1] - client.tokens[0] for client in seen)
    whole = sum(client.duration for client in seen)
    # The client adds the network's and its own time; the server cannot have waited longer.
    assert told["time_to_first_token_seconds"][1] == pytest.approx(first, rel=0.5, abs=0.2)
    assert told["inter_token_latency_seconds"][1] == pytest.approx(between, rel=0.25, abs=0.1)
    assert told["request_duration_seconds"][1] == pytest.approx(whole, rel=0.25, abs=0.2)
    assert told["time_to_first_token_seconds"][1] <= first
    assert told["request_duration_seconds"][1] <= whole
    # Four run and four wait for them: that is most of what these wait for their first token.
    queued = told["queue_duration_seconds"][1]
    assert 0.2 * first < queued < told["time_to_first_token_seconds"][1]


def fields(line: str) -> dict[str, str]:
    return {
        name: value.strip('"') for name, value in re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', line)
    }


def log_line(server, request_id: str) -> dict[str, str]:
    found = []

    def written() -> bool:
        found[:] = [line for line in server.output.splitlines() if f"id={request_id} " in line]
        return bool(found)

    wait_until(written, 10, f"a log line of {request_id}")
    (line,) = found
    return fields(line)


def test_one_line_of_a_request_tells_its_latencies_and_no_text(server):
    server.complete(
        "What is secret?", max_tokens=8, ignore_eos=True, request_id="logged", user='a "b"\nc'
    )
    line = log_line(server, "logged")
    assert line["status"] == "200"
    assert line["route"] == "/v1/completions"
    assert (line["prompt_tokens"], line["output_tokens"]) == ("15", "8")
    assert line["finish"] == "length"
    assert 0 <= float(line["queue"]) < float(line["first_token"]) < float(line["duration"])
    assert line["preemptions"] == "0"
    assert line["user"] == 'a \\"b\\"\\nc'
    assert "secret" not in server.output


def test_a_refused_request_has_its_line_too(server):
    server.complete("x", max_tokens=0)
    wait_until(lambda: "route=/v1/completions status=400" in server.output, 10)


def test_a_client_that_left_is_told_of_as_aborted(server):
    body = {"prompt": "x", "max_tokens": 300, "request_id": "left", **STREAMED}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
    line = log_line(server, "left")
    assert line["finish"] == "abort"
    assert 1 <= int(line["output_tokens"]) < 300
