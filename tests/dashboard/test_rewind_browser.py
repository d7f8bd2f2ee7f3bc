"""Moments in a real Chromium: every way to one, and that canvas, figures and address agree on it."""

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from dashboard.cells import Grid
from engine.events import PoolState, TraceReader
from engine.events.records import Preempt, Step
from tests.dashboard.browser import (
    CANVAS,
    assert_sample_is_consistent,
    chromium,
    hover,
    needs_chromium,
    open_pool,
    read_figures,
    running_dashboard,
    sample_pool,
    seek,
    serious_faults,
    standing_at,
)
from tests.dashboard.fake_engine import fake_engine
from tests.dashboard.folding import folded, steps_of
from tests.dashboard.simulated import SimulatedEngine, write_trace
from tests.dashboard.waiting import wait_for

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def large_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """260 steps on 16,384 blocks, half of them in use."""
    engine = SimulatedEngine(16_384, seed=5, prompt=(1500, 4000), output=(100, 600), max_running=60)
    path = tmp_path_factory.mktemp("traces") / "large.jsonl.zst"
    return write_trace(path, engine, steps=260)


@pytest.fixture(scope="module")
def dashboard(
    small_trace: Path, large_trace: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("dashboard") / "log.txt"
    with running_dashboard([str(small_trace), str(large_trace)], log) as url:
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
    yield page
    page.close()


def words_by_record(path: Path) -> dict[int, list[list[int]]]:
    """For each record the words of every block, derived by following the trace from its start."""
    words = {}
    with TraceReader(path) as reader:
        state, grid = PoolState(reader.header), None
        for record in reader:
            state.apply(record)
            if grid is None:
                grid = Grid(state)
            elif isinstance(record, Step):
                grid.follow(state, record)
            words[state.seq] = [tuple(block) for block in grid.words.tolist()]
    return words


def test_rewinding_shows_exactly_the_pool_of_that_step_at_20_random_steps(
    page: Page, dashboard: str, small_trace: Path
) -> None:
    expected = words_by_record(small_trace)
    draw = random.Random(7)
    open_pool(page, f"{dashboard}?seq=0")
    seen = set()
    while len(seen) < 20:
        before = sample_pool(page).seq
        seek(page, draw.random())
        wait_for(lambda before=before: sample_pool(page).seq != before, what="another record")
        sample = sample_pool(page)
        seen.add(sample.seq)
        assert_sample_is_consistent(sample, 48)
        assert sample.words == expected[sample.seq], f"after record {sample.seq}"
        state = folded(small_trace, sample.seq)
        wait_for(
            lambda step=state.step: (
                page.locator(".figures").get_attribute("data-step") == str(step)
            ),
            what="the figures of this step",
        )
        figures = read_figures(page)
        assert figures["Active"] == str(state.active_blocks)
        assert figures["Free"] == str(state.free_blocks)
        assert figures["Running"] == str(state.queues.running)


def test_the_keys_of_the_player_go_where_they_say(
    page: Page, dashboard: str, small_trace: Path
) -> None:
    preempted = [
        step.seq
        for step in steps_of(small_trace)
        if any(isinstance(event, Preempt) for event in step.events)
    ]
    open_pool(page, f"{dashboard}?seq=100")
    standing_at(page, 100)
    for key, seq in (
        ("ArrowRight", 101),
        ("ArrowLeft", 100),
        ("Shift+ArrowLeft", 80),
        ("Shift+ArrowRight", 100),
        ("Home", -1),
        ("l", 199),
        ("Home", -1),
        ("p", preempted[0]),
        ("p", preempted[1]),
        ("Shift+P", preempted[0]),
    ):
        page.keyboard.press(key)
        standing_at(page, seq)
    page.keyboard.press("Space")
    wait_for(lambda: sample_pool(page).seq > preempted[0] + 3, what="playing")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Play (Space)").wait_for()
    page.keyboard.press(">")
    wait_for(
        lambda: page.get_by_label("Speed of playing").input_value() == "2", what="double speed"
    )
    page.locator(".keys summary").click()
    assert page.locator(".sheet").get_by_text("next preemption").is_visible()


def test_the_grid_is_walked_zoomed_and_pinned_by_keyboard(page: Page, dashboard: str) -> None:
    open_pool(page, f"{dashboard}?seq=100")
    columns = standing_at(page, 100).geometry["columns"]
    page.locator(CANVAS).focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    tip = page.locator(".tip.hover", has_text=f"Block {columns + 1}:")
    tip.wait_for()
    page.keyboard.press("Enter")
    page.locator(".panel", has_text=f"Block {columns + 1}:").wait_for()
    page.keyboard.press("+")
    page.locator(".minimap").wait_for(state="visible")
    page.keyboard.press("0")
    page.locator(".minimap").wait_for(state="hidden")
    page.keyboard.press("Escape")
    page.locator(".panel").wait_for(state="hidden")
    assert sample_pool(page).seq == 100, "none of these keys moved the player"


def test_a_zoomed_and_dragged_pool_names_the_right_block(page: Page, dashboard: str) -> None:
    open_pool(page, f"{dashboard}?source=large.jsonl.zst&seq=200")
    standing_at(page, 200)
    box = page.locator(CANVAS).bounding_box()
    x, y = box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.6
    page.mouse.move(x, y)
    page.locator(".tip.hover canvas.lens").wait_for()
    page.keyboard.down("Control")
    for _ in range(4):
        page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.locator(".minimap").wait_for(state="visible")
    page.mouse.down()
    page.mouse.move(x - 120, y - 60, steps=4)
    page.mouse.up()
    page.mouse.move(x - 100, y - 90)
    page.locator(".tip.hover").wait_for(state="visible")
    view = page.locator(CANVAS).evaluate("canvas => JSON.parse(canvas.dataset.geometry).view")
    columns = sample_geometry(page)["columns"]
    column = int((x - 100 - box["x"] + view["left"]) // view["cell"])
    row = int((y - 90 - box["y"] + view["top"]) // view["tall"])
    assert view["cell"] >= 15, "zoomed in to rich cells"
    assert f"Block {row * columns + column}:" in page.locator(".tip.hover").inner_text()


def sample_geometry(page: Page) -> dict:
    return page.locator(CANVAS).evaluate("canvas => JSON.parse(canvas.dataset.geometry)")


def test_the_address_is_a_link_that_restores_exactly_this_view(
    browser: Browser, page: Page, dashboard: str, small_trace: Path
) -> None:
    open_pool(page, f"{dashboard}?seq=120")
    sample = standing_at(page, 120)
    state = folded(small_trace, 120)
    block = next(iter(state.owners))
    hover(page, sample.geometry, block)
    page.mouse.down()
    page.mouse.up()
    request = state.sequences[min(state.owners[block])].request
    page.locator(".panel").get_by_role("button", name=f"Select request {request}").first.click()
    page.locator(".banners", has_text=f"Request {request}").wait_for()
    page.wait_for_url(re.compile(rf"source={small_trace.name}&seq=120&block={block}&request="))
    other = browser.new_page(viewport={"width": 1400, "height": 900})
    open_pool(other, page.url)
    assert standing_at(other, 120).words == sample.words
    other.locator(".panel", has_text=f"Block {block}:").wait_for()
    other.locator(".banners", has_text=f"Request {request}").wait_for()
    other.close()


def test_a_line_of_the_ticker_leads_to_its_step_its_block_and_its_request(
    page: Page, dashboard: str
) -> None:
    open_pool(page, f"{dashboard}?seq=150")
    standing_at(page, 150)
    line = page.locator(".ticker li[data-kind=copied]").first
    step = int(re.match(r"step (\d+)", line.inner_text())[1])
    line.get_by_role("button", name=re.compile("pin block")).first.click()
    standing_at(page, step - 1)  # the simulated engine's steps count from 1
    page.locator(".panel").get_by_role("button", name="Unpin").click()
    line = page.locator(".ticker li[data-kind=copied]").first
    line.get_by_role("button", name=re.compile("select request")).click()
    page.locator(".banners", has_text="at this step").wait_for()


def test_three_browsers_stand_at_three_moments_while_a_fourth_is_live(
    browser: Browser, tmp_path: Path
) -> None:
    with fake_engine(SimulatedEngine(48, seed=3, max_running=8)) as engine:
        log = tmp_path / "log.txt"
        with running_dashboard(engine.url, log) as url:
            pages = [browser.new_page(viewport={"width": 1000, "height": 700}) for _ in range(4)]
            open_pool(pages[0], url)  # the feed runs from here on at the latest
            engine.step(60)
            standing_at(pages[0], 59)
            for page, seq in zip(pages[1:], (10, 25, 40), strict=True):
                open_pool(page, f"{url}?seq={seq}")
                standing_at(page, seq)
            with engine.running(0.02):
                wait_for(lambda: sample_pool(pages[0]).seq > 75, what="live goes on")
                assert [sample_pool(page).seq for page in pages[1:]] == [10, 25, 40]
            badges = [page.locator(".badge").inner_text() for page in pages]
            assert badges == ["Live", "Rewound", "Rewound", "Rewound"]
            assert re.search(r"step 11, \d+ s ago", pages[1].locator(".where").inner_text())
            pages[1].get_by_role("button", name="Back to now").click()
            wait_for(lambda: sample_pool(pages[1]).seq > 75, what="live again")
            assert engine.connections == 1
            for page in pages:
                page.close()


def test_a_seek_in_16384_blocks_is_redrawn_soon(page: Page, dashboard: str) -> None:
    """The goal is 150 ms on a quiet machine; the deadline here is for one that several share."""
    open_pool(page, f"{dashboard}?source=large.jsonl.zst&seq=10")
    standing_at(page, 10)
    page.locator(CANVAS).evaluate(_WATCH_PAINTS)
    spent = []
    for seq in (250, 30, 200, 90, 140, 60, 230, 110):
        spent.append(page.locator(CANVAS).evaluate(_SEEK, seq))
    spent.sort()
    print(f"seek to paint: median {spent[len(spent) // 2]:.0f} ms, worst {spent[-1]:.0f} ms")
    assert spent[len(spent) // 2] < 800


_WATCH_PAINTS = """canvas => {
    window.painted = []
    new MutationObserver(() => window.painted.push([performance.now(), canvas.dataset.seq]))
        .observe(canvas, { attributes: true, attributeFilter: ["data-seq"] })
}"""
# From a click on the scrubber, in the page's own clock, to the paint of another record.
_SEEK = """(canvas, seq) => new Promise((resolve) => {
    const scrubber = canvas.getRootNode().querySelector(".scrubber")
    const box = scrubber.getBoundingClientRect()
    const [low, high] = ["aria-valuemin", "aria-valuemax"].map((n) => Number(scrubber.getAttribute(n)))
    const at = { clientX: box.left + (box.width * (seq - low)) / (high - low), clientY: box.top + 5 }
    const start = performance.now()
    window.painted = []
    const pointer = { ...at, pointerId: 1, button: 0, bubbles: true }
    scrubber.setPointerCapture = () => {}
    scrubber.dispatchEvent(new PointerEvent("pointerdown", pointer))
    scrubber.dispatchEvent(new PointerEvent("pointerup", pointer))
    const look = () => {
        const done = window.painted.find(([, shown]) => Math.abs(Number(shown) - seq) <= 1)
        if (done) resolve(done[0] - start)
        else if (performance.now() > start + 5000) resolve(5000)
        else setTimeout(look, 5)
    }
    look()
})"""


def test_every_state_of_the_page_is_free_of_serious_accessibility_faults(
    browser: Browser, dashboard: str
) -> None:
    for scheme in ("light", "dark"):
        page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
        open_pool(page, f"{dashboard}?seq=150&block=5")
        page.locator(".panel").wait_for(state="visible")
        page.locator(".keys summary").click()
        assert serious_faults(page) == [], scheme
        page.close()


def test_65536_blocks_are_painted_often_enough_to_look_alive(
    browser: Browser, tmp_path: Path
) -> None:
    """The goal is 15 painted updates a second. A busy machine steps more slowly too: so a share."""
    engine = SimulatedEngine(
        65_536, seed=5, prompt=(2000, 8000), output=(100, 900), max_running=150
    )
    with fake_engine(engine) as fake:
        fake.step(150)
        with running_dashboard(fake.url, tmp_path / "log.txt") as url:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            open_pool(page, url)
            with fake.running(0.03):
                wait_for(lambda: sample_seq(page) > 155, what="the first updates")
                first, steps, start = paints(page), engine.seq, time.monotonic()
                wait_for(lambda: paints(page) > first + 50, seconds=40, what="50 paints")
                spent = time.monotonic() - start
                rate, pace = (paints(page) - first) / spent, (engine.seq - steps) / spent
            print(f"65,536 blocks: {rate:.1f} paints a second of {pace:.1f} steps a second")
            assert rate > min(15, 0.15 * pace)
            page.close()


def sample_seq(page: Page) -> int:
    return int(page.locator(CANVAS).get_attribute("data-seq"))


def paints(page: Page) -> int:
    return int(page.locator(CANVAS).get_attribute("data-paints"))
