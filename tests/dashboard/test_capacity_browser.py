"""The page "Capacity" in a real Chromium: an input changes, and what is shown is what the lab says."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from engine.lab.capacity import Sizing
from engine.lab.model_shapes import model_shape
from engine.lab.observation import observe_trace
from engine.lab.reconciliation import own_sizing, reconcile
from tests.dashboard.browser import chromium, needs_chromium, running_dashboard, serious_faults

pytestmark = needs_chromium
WAIT = 60_000
"""Milliseconds: on a busy machine the first widgets of a page take long."""


@pytest.fixture(scope="module")
def url(small_trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_dashboard([str(small_trace)], tmp_path_factory.mktemp("log") / "log.txt") as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page at record 20; at the end, nothing has failed in it and nobody else was asked."""
    page = browser.new_page(viewport={"width": 1440, "height": 1500}, color_scheme="light")
    strangers, errors = [], []
    page.on(
        "request",
        lambda request: (
            urlsplit(request.url).netloc in ("", urlsplit(url).netloc)
            or strangers.append(request.url)
        ),
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_default_timeout(WAIT)
    page.goto(f"{url}/capacity?seq=20")
    yield page
    assert page.get_by_test_id("stException").count() == 0
    assert not errors, errors
    assert not strangers, f"the page asked elsewhere: {strangers}"
    page.close()


def expect_figure(page: Page, label: str, value: int) -> None:
    metric = page.get_by_test_id("stMetric").filter(has_text=label)
    expect(metric.get_by_test_id("stMetricValue")).to_have_text(f"{value:,}", timeout=WAIT)


def expect_sizing(page: Page, sizing: Sizing) -> None:
    expect_figure(page, "Bytes per token", sizing.bytes_per_token)
    expect_figure(page, "Bytes per block", sizing.bytes_per_block)
    expect_figure(page, "Blocks", sizing.num_blocks)
    expect_figure(page, "Cacheable tokens", sizing.tokens)


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=label).click()
    page.get_by_role("option", name=option, exact=True).click()


def test_inputs_change_what_is_shown_and_it_is_what_the_lab_says(page: Page) -> None:
    expect_sizing(page, Sizing(12_288, 16, 12_400_000_000))
    page.get_by_test_id("stVegaLiteChart").locator("canvas").wait_for()
    choose(page, "Model", "Llama-3.1-8B")
    per_token = model_shape("Llama-3.1-8B").bytes_per_token("bfloat16")
    expect_sizing(page, Sizing(per_token, 16, 12_400_000_000))
    memory = page.get_by_role("textbox", name="Memory", exact=True)
    memory.fill("20GiB")
    memory.press("Enter")
    expect_sizing(page, Sizing(per_token, 16, 20 * 2**30))
    memory.fill("a lot")
    memory.press("Enter")
    expect(page.get_by_text("a lot is no amount of memory")).to_be_visible(timeout=WAIT)
    expect(page.get_by_test_id("stMetric")).to_have_count(0)


def test_a_folder_may_be_typed_as_a_model(page: Page, tmp_path: Path) -> None:
    config = {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = page.get_by_role("combobox", name="Model")
    model.fill(str(tmp_path))
    model.press("Enter")
    expect_sizing(page, Sizing(2 * 3 * 4 * 8 * 2, 16, 12_400_000_000))


def test_what_was_chosen_is_kept_while_another_page_is_shown(page: Page) -> None:
    choose(page, "Block size", "32")
    sizing = Sizing(12_288, 32, 12_400_000_000)
    expect_sizing(page, sizing)
    page.get_by_role("link", name="Preemptions").click()
    page.get_by_text("Preemptions as known at step 21,").wait_for()
    page.get_by_role("link", name="Capacity").click()
    expect_sizing(page, sizing)


def test_the_fullest_moment_of_the_watched_run_is_accounted_for(
    page: Page, small_trace: Path
) -> None:
    expect(page.get_by_text("as known at step 21,")).to_be_visible(timeout=WAIT)
    seen = observe_trace(small_trace)
    page.get_by_role("button", name="Go to its fullest moment").last.click()
    expect(page.get_by_text(f"as known at step {seen.step},")).to_be_visible(timeout=WAIT)
    found = reconcile(own_sizing(seen), 512, seen)
    expect_figure(page, "Sized for", found.sized_for)
    expect_figure(page, "Runs", found.runs)
    expect_figure(page, "Wait", seen.waiting)


def test_the_page_is_free_of_serious_accessibility_faults(page: Page) -> None:
    expect_sizing(page, Sizing(12_288, 16, 12_400_000_000))
    page.get_by_test_id("stVegaLiteChart").locator("canvas").wait_for()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert serious_faults(page) == [], scheme
