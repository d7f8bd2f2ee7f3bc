"""`glasspool serve --model none`: the whole server without torch."""

import concurrent.futures
import subprocess
import sys

import httpx
import pytest

from engine.events import check_state
from tests.servers import EngineServer
from tests.service.clients import StreamReader


@pytest.fixture(scope="module")
def server():
    options = ("--num-gpu-blocks-override", "20", "--max-num-queued-reqs", "2")
    options += ("--scheduling-policy", "priority", "--max-num-seqs", "2")
    with EngineServer("--model", "none", *options) as server:
        yield server


def test_it_runs_where_torch_is_not_installed():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from engine.service.server import build_context\n"
        "from engine.service.settings import ServeSettings\n"
        "build_context(ServeSettings('none'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_request_is_as_long_as_it_asks_for(server):
    body = server.complete("Hello", max_tokens=7).json()
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


def test_an_equal_beginning_is_shared_and_said(server):
    prompt = "The same beginning of three whole blocks of text."
    with StreamReader(server.events_url) as reader:
        reader.read()
        before = reader.state.totals.requests_finished.get("length", 0)
        for _ in range(2):
            assert server.complete(prompt, max_tokens=2, priority=1).status_code == 200
        reader.read_until_idle()
        while reader.state.totals.requests_finished.get("length", 0) < before + 2:
            reader.read()
    totals = reader.state.totals
    assert totals.prefix_hit_tokens == 48
    assert reader.state.cached_blocks >= 3
    assert check_state(reader.state) == []
    metrics = httpx.get(f"{server.url}/metrics").text
    assert f'glasspool_blocks{{state="cached"}} {reader.state.cached_blocks:.1f}' in metrics


def test_a_full_queue_is_a_503_that_says_when_to_try_again(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(server.complete, "Hi", max_tokens=40) for _ in range(8)]
        answers = [answer.result() for answer in answers]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert refused
    assert {answer.status_code for answer in answers} == {200, 503}
    for answer in refused:
        assert answer.headers["Retry-After"] == "1"
        assert "max_num_queued_reqs" in answer.json()["error"]["message"]
