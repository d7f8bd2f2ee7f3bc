"""GET /v1/pool and POST /reset_prefix_cache."""

import httpx
import pytest

from tests.servers import wait_until
from tests.service.clients import StreamReader


@pytest.fixture(scope="module")
def http(engine_server):
    """Connected, so that an answer comes while a short request still runs."""
    with httpx.Client(base_url=engine_server.url) as client:
        client.get("/health")
        yield client


# A dropped iterator closes its stream: these tests keep theirs while the request is to run.


def pool_of(http: httpx.Client) -> dict:
    return http.get("/v1/pool").json()


def test_the_pool_names_the_owners_of_each_block(engine_server, http):
    with StreamReader(engine_server.events_url) as reader:
        reader.read_until_idle()
        body = {"prompt": "Hello, dear pool", "n": 3, "max_tokens": 60, "ignore_eos": True}
        body |= {"stream": True, "request_id": "holder", "temperature": 1}
        with http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            pool = pool_of(http)
        while reader.state.seq < pool["seq"]:
            reader.read()
        assert pool["seq"] == reader.state.seq, "the fold was not read beyond the answer"
        state = reader.state
        assert pool["free"] + pool["cached"] + pool["active"] == pool["num_blocks"] == 24
        assert (pool["active"], pool["shared"]) == (state.active_blocks, state.shared_blocks)
        (request,) = pool["requests"]
        assert (request["request"], request["n"]) == ("holder", 3)
        tables = {s["sequence"]: s["table"] for s in request["sequences"]}
        assert len(tables) == 3
        for block in pool["blocks"]:
            owners = {owner["sequence"]: owner["index"] for owner in block["owners"]}
            assert owners == state.owners.get(block["block"], {})
            assert block["ref_count"] == len(owners)
            for sequence, index in owners.items():
                assert tables[sequence][index] == block["block"]
        assert any(block["ref_count"] == 3 for block in pool["blocks"])
    wait_until(lambda: pool_of(http)["active"] == 0, 10, "the client went away")


def test_the_prefix_cache_is_reset_when_nothing_runs_and_only_then(engine_server, http):
    engine_server.complete("A prompt of some blocks, that is kept", max_tokens=1)
    assert pool_of(http)["cached"] > 0
    body = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        refused = http.post("/reset_prefix_cache")
        assert refused.status_code == 409
        assert "blocks are active" in refused.json()["error"]["message"]
        assert pool_of(http)["cached"] > 0
    wait_until(lambda: pool_of(http)["active"] == 0, 10, "the client went away")
    assert http.post("/reset_prefix_cache").json() == {"reset": True}
    pool = pool_of(http)
    assert (pool["free"], pool["blocks"], pool["requests"]) == (24, [], [])


def test_a_stream_that_is_left_frees_its_blocks_within_a_step_or_two(engine_server, http):
    with StreamReader(engine_server.events_url) as reader:
        reader.read_until_idle()
        body = {"prompt": "Hello", "n": 4, "max_tokens": 300, "ignore_eos": True, "stream": True}
        with http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            left_at = reader.state.step
        reader.read_until_idle()
        # It has gone through a few steps before its client left, and far from all.
        assert reader.state.step - left_at < 150
        assert reader.state.totals.requests_finished["abort"] >= 1
        assert reader.state.active_blocks == 0
