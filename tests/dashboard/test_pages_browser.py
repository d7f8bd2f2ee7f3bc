"""The pages beside the pool in a real Chromium: what is clicked is what is shown, everywhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

from dashboard.request_table import unfinished_rows
from tests.dashboard.browser import chromium, needs_chromium, running_dashboard, serious_faults
from tests.dashboard.fake_engine import fake_engine
from tests.dashboard.folding import folded, steps_of
from tests.dashboard.simulated import SimulatedEngine, write_trace
from tests.dashboard.test_preemptions import by_hand
from tests.dashboard.waiting import wait_for

pytestmark = needs_chromium

ROW, HEAD = 31, 34
"""Heights of a table's rows and its head, in pixels."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def dashboard(small_trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("dashboard")
    other = write_trace(folder / "other.jsonl.zst", SimulatedEngine(64, seed=3), 120)
    with running_dashboard([str(small_trace), str(other)], folder / "log.txt") as url:
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 1600}, color_scheme="light")
    yield page
    page.close()


def click_row(page: Page, row: int, shows: Locator) -> None:
    """Mark a row of the page's first table, and wait for what that shows.

    A table is drawn a little before it takes clicks.
    """
    table = page.get_by_test_id("stDataFrame").first
    table.locator("canvas").first.wait_for()

    def clicked() -> bool:
        box = table.bounding_box()
        page.mouse.click(box["x"] + 14, box["y"] + HEAD + ROW * row + ROW / 2)
        try:
            shows.wait_for(timeout=6_000)
        except TimeoutError:
            return False
        return True

    wait_for(clicked, seconds=30, what="a click on the table")


def chart(page: Page, number: int = 0) -> Locator:
    drawn = page.get_by_test_id("stVegaLiteChart").nth(number).locator("canvas")
    drawn.wait_for(timeout=20_000)
    return drawn


def tip_at(page: Page, x: float, y: float) -> dict[str, str] | None:
    """The tooltip of a chart at this place of the page."""
    page.mouse.move(x, y - 1)
    page.mouse.move(x, y)
    tip = page.locator("#vg-tooltip-element.visible")
    try:
        tip.wait_for(timeout=400)
    except TimeoutError:
        return None
    rows = tip.locator("tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return {row[0].rstrip(":"): row[1] for row in rows if len(row) == 2}


def test_from_a_request_to_its_block_in_the_pool_and_back(
    page: Page, dashboard: str, small_trace: Path
) -> None:
    state = folded(small_trace, 120)
    name = unfinished_rows(state)[0].request
    page.goto(f"{dashboard}/requests?seq=120")
    click_row(page, 0, page.get_by_role("heading", name=f"Request {name}"))
    box = chart(page).bounding_box()
    places = ((box["x"] + x, box["y"] + y) for y in range(60, 120, 10) for x in (75, 90))
    found = next((at, tip) for at in places if (tip := tip_at(page, *at)) and "index" in str(tip))
    place, tip = found
    block, sequence = int(tip["physical block"]), int(tip["sequence"])
    index = int(tip["logical index"])
    assert state.sequences[sequence].table[index] == block
    assert state.sequences[sequence].request == name
    assert tip["ref count"] == str(state.ref_count[block])
    page.mouse.click(*place)
    page.get_by_role("link", name=f"Block {block} in the pool").click()
    panel = page.locator(".panel", has_text=f"Block {block}:")
    panel.wait_for(timeout=20_000)
    page.locator(".banners", has_text=f"Request {name}").wait_for()
    page.locator(".banners").get_by_role("button").click()
    owner = state.sequences[min(state.owners[block])].request
    panel.get_by_role("button", name=f"Select request {owner}").first.click()
    page.get_by_role("link", name="Requests").click()
    page.get_by_role("heading", name=f"Request {owner}").wait_for(timeout=20_000)


def test_brushing_the_timeline_zooms_and_a_click_goes_to_its_step(
    page: Page, dashboard: str, small_trace: Path
) -> None:
    page.goto(f"{dashboard}/timeline?seq=199")
    box = chart(page).bounding_box()
    left, right, y = box["x"] + 90, box["x"] + box["width"] - 10, box["y"] + 170
    first = wait_for(lambda: tip_at(page, left, y), seconds=20, what="the first chart")
    last = tip_at(page, right, y)
    assert int(first["from step"]) < 10
    assert int(last["to step"]) > 190
    strip = box["y"] + 20
    page.mouse.move(box["x"] + 0.4 * box["width"], strip)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], strip, steps=5)
    page.mouse.up()
    near = wait_for(
        lambda: (tip := tip_at(page, left, y)) and int(tip["from step"]) > 50 and tip,
        seconds=20,
        what="the zoom",
    )
    far = tip_at(page, right, y)
    assert 60 < int(near["from step"]) < int(far["to step"]) < 140
    middle = tip_at(page, (left + right) / 2, y)
    step = int(middle["to step"])
    page.mouse.click((left + right) / 2, y)
    expect(page.get_by_text(f"as known at step {step},")).to_be_visible(timeout=20_000)
    expect(page.locator(".where")).to_contain_text(f"step {step}", timeout=10_000)
    seq = next(record.seq for record in steps_of(small_trace) if record.step == step)
    page.wait_for_url(re.compile(rf"seq={seq}\b"))


def test_the_story_of_a_preemption_tells_the_numbers_of_the_trace(
    page: Page, dashboard: str, small_trace: Path
) -> None:
    expected = list(reversed(by_hand(steps_of(small_trace))))
    page.goto(f"{dashboard}/preemptions?seq=199")
    page.get_by_role("button", name="Go to step").first.wait_for()
    for row in (0, 3):
        told = expected[row]
        story = page.get_by_test_id("stMarkdown").filter(has_text="was preempted")
        click_row(page, row, story.filter(has_text=f"Step {told.step}, second"))
        text = story.inner_text()
        assert f"request {told.request} was preempted" in text
        assert f"{told.blocks} block" in text
        assert f"{told.lost} token" in text
        if told.resumed is not None:
            assert f"Step {told.resumed}: it got blocks again" in text
            assert f"{told.recomputed} token" in text
    page.get_by_role("button", name=f"Go to step {expected[3].step}", exact=True).click()
    expect(page.locator(".where")).to_contain_text(f"step {expected[3].step},", timeout=15_000)


def test_what_is_selected_stays_so_while_a_live_page_refreshes(
    browser: Browser, tmp_path: Path
) -> None:
    with fake_engine(SimulatedEngine(48, seed=3, max_running=8)) as engine:
        engine.step(60)
        with running_dashboard(engine.url, tmp_path / "log.txt") as url:
            page = browser.new_page(viewport={"width": 1400, "height": 1600})
            page.goto(f"{url}/requests")
            page.get_by_text("Requests now, live").wait_for(timeout=20_000)
            heading = page.locator("h4")
            click_row(page, 2, heading)
            name, seen = heading.inner_text(), set()
            with engine.running(0.05):
                for _ in range(3):
                    before = page.get_by_text("Requests now, live").inner_text()
                    expect(page.get_by_text(before)).to_have_count(0, timeout=20_000)
                    seen.add(before)
                    assert heading.inner_text() == name
            assert len(seen) == 3
            page.get_by_role("link", name="Timeline").click()
            page.get_by_text("The timeline now").wait_for(timeout=20_000)
            page.get_by_role("link", name="Requests").click()
            page.get_by_role("heading", name=name).wait_for(timeout=20_000)
            page.close()


def test_the_pages_are_free_of_serious_accessibility_faults(
    page: Page, dashboard: str, small_trace: Path
) -> None:
    name = unfinished_rows(folded(small_trace, 150))[0].request
    for path in ("requests", "timeline", "preemptions", "compare"):
        page.emulate_media(color_scheme="light")
        page.goto(f"{dashboard}/{path}?seq=150&request={name}")
        chart(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            wait_for(lambda scheme=scheme: is_dark(page) == (scheme == "dark"), what=scheme)
            assert serious_faults(page) == [], (path, scheme)
        assert page.get_by_test_id("stException").count() == 0


def is_dark(page: Page) -> bool:
    """Whether the page's ground is dark."""
    colour = page.get_by_test_id("stApp").evaluate("app => getComputedStyle(app).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 128
