"""The Pool page in a real Chromium: pixels, hover and pin against the fold of the same trace."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from engine.events import PoolState, TraceReader
from tests.dashboard.browser import (
    CANVAS,
    assert_pool_page_is_alive,
    assert_sample_is_consistent,
    chromium,
    hover,
    needs_chromium,
    open_pool,
    read_figures,
    running_dashboard,
    sample_pool,
    standing_at,
)
from tests.dashboard.fake_engine import fake_engine
from tests.dashboard.folding import folded
from tests.dashboard.simulated import SimulatedEngine
from tests.dashboard.waiting import wait_for

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def dashboard(small_trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("dashboard") / "log.txt"
    with running_dashboard(str(small_trace), log) as url:
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
    yield page
    page.close()


def states_by_record(path: Path) -> dict[int, list[str]]:
    """For each record of a trace, the state of each block as the fold has it."""
    states = {}
    with TraceReader(path) as reader:
        state = PoolState(reader.header)
        for record in reader:
            state.apply(record)
            states[state.seq] = [_state_of(state, block) for block in range(state.num_blocks)]
    return states


def _state_of(state: PoolState, block: int) -> str:
    owners = len(state.owners.get(block, ()))
    if owners:
        return "shared" if owners > 1 else "used"
    return "cached" if block in state.hashes else "free"


def test_the_pool_page_of_a_trace_is_alive(page: Page, dashboard: str) -> None:
    assert_pool_page_is_alive(page, dashboard, num_blocks=48)


def test_the_pool_page_of_an_engine_is_alive(page: Page, tmp_path: Path) -> None:
    with fake_engine(SimulatedEngine(48, seed=3, max_running=8)) as engine:
        engine.step(30)
        with running_dashboard(engine.url, tmp_path / "log.txt") as url, engine.running():
            assert_pool_page_is_alive(page, url, num_blocks=48)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_cell_is_painted_in_the_colour_of_its_state_in_the_fold(
    browser: Browser, dashboard: str, small_trace: Path, scheme: str
) -> None:
    states = states_by_record(small_trace)
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    open_pool(page, dashboard)
    seen = set()
    while len(seen) < 12:
        sample = sample_pool(page)
        seen.add(sample.seq)
        assert_sample_is_consistent(sample, 48)
        for block, colour in enumerate(sample.colours):
            state = states[sample.seq][block]
            if colour == "copied":
                assert state in ("used", "shared")
            elif colour == "preempted":
                assert state in ("free", "cached")
            else:
                assert colour == state, f"block {block} after record {sample.seq}"
    page.close()


def test_hover_and_pin_agree_with_the_fold(page: Page, dashboard: str, small_trace: Path) -> None:
    state = folded(small_trace, 60)
    shared = next(block for block, owners in state.owners.items() if len(owners) > 1)
    partial = next(block for block in state.owners if state.filled[block] < state.block_size)
    open_pool(page, f"{dashboard}?seq=60")
    sample = standing_at(page, 60)
    for block in (shared, partial):
        text = hover(page, sample.geometry, block).replace("\n\n", "\n")
        for part in (
            f"{state.filled[block]} of {state.block_size} slots",
            f"ref count\n{state.ref_count[block]}\n",
            state.block_text(block).strip(),
        ):
            assert part in text
        for sequence, index in state.owners[block].items():
            owner = state.sequences[sequence]
            where = f"sequence {sequence}, index {index} of {len(owner.table)}"
            assert f"request {owner.request}, {where}" in text
    page.mouse.down()
    page.mouse.up()
    panel = page.locator(".panel", has_text=f"Block {partial}:")
    panel.wait_for(state="visible")
    page.mouse.move(5, 5)
    page.locator(".tip.hover").wait_for(state="hidden")
    text = panel.inner_text()
    assert f"{state.filled[partial]} of {state.block_size} slots" in text
    ((sequence, index),) = state.owners[partial].items()
    for block in state.sequences[sequence].table[:index]:
        assert panel.get_by_role("button", name=f"Block {block},").count() == 1
    assert "handed to sequence" in panel.locator(".changes").inner_text()
    page.wait_for_url(re.compile(rf"seq=60&block={partial}$"), timeout=5000)
    panel.get_by_role("button", name="Unpin").click()
    panel.wait_for(state="hidden")


def test_a_change_of_theme_keeps_one_canvas_and_one_socket(page: Page, dashboard: str) -> None:
    sockets = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    open_pool(page, dashboard)
    background = "canvas => getComputedStyle(canvas).getPropertyValue('--st-background-color')"
    before = page.locator(CANVAS).evaluate(background)
    page.emulate_media(color_scheme="dark")
    wait_for(
        lambda: before != page.locator(CANVAS).evaluate(background),
        what="the dark theme",
    )
    # The next painted frame must be in the new palette: sample_pool knows no other colour.
    wait_for(lambda: _sampled(page), what="cells in the dark palette")
    assert page.locator(CANVAS).count() == 1
    assert len([url for url in sockets if "/glasspool/pool" in url]) == 1


def _sampled(page: Page) -> bool:
    try:
        return sample_pool(page) is not None
    except AssertionError:
        return False


def test_an_engine_that_goes_away_and_comes_back_is_never_shown_stale(
    page: Page, tmp_path: Path
) -> None:
    with fake_engine(SimulatedEngine(48, seed=3, max_running=8)) as engine:
        engine.step(30)
        with running_dashboard(engine.url, tmp_path / "log.txt") as url:
            open_pool(page, url)
            page.locator(".figure").first.wait_for()
            engine.refuse(True)
            page.locator(f"{CANVAS}[data-current=false]").wait_for()
            page.locator(".banners").get_by_text("Not connected").wait_for()
            assert page.locator(".badge").inner_text() == "Not connected"
            wait_for(lambda: read_figures(page) == {}, what="no figure left")
            engine.restart(SimulatedEngine(80, seed=4))
            engine.step(6)
            engine.refuse(False)
            page.locator(f"{CANVAS}[data-current=true][data-num-blocks='80']").wait_for(
                timeout=20_000
            )
            wait_for(lambda: read_figures(page), what="figures of the new engine")
            figures = read_figures(page)
            assert sum(int(figures[name]) for name in ("Active", "Cached", "Free")) == 80
            assert page.locator(".banners").inner_text() == ""
            assert page.locator(".badge").inner_text() == "Live"


def test_the_past_of_an_engine_that_is_gone_can_still_be_looked_at(
    page: Page, tmp_path: Path
) -> None:
    with fake_engine(SimulatedEngine(48, seed=3, max_running=8)) as engine:
        engine.step(10)
        with running_dashboard(engine.url, tmp_path / "log.txt") as url:
            open_pool(page, url)
            engine.step(20)
            standing_at(page, 29)
            engine.refuse(True)
            page.locator(f"{CANVAS}[data-current=false]").wait_for()
            page.keyboard.press("ArrowLeft")
            standing_at(page, 28)
            assert page.locator(".badge").inner_text() == "Rewound"
            assert "What is shown here is its past" in page.locator(".banners").inner_text()
            assert read_figures(page)


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (800, 600)])
def test_nothing_is_cut_off(browser: Browser, dashboard: str, width: int, height: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": height})
    open_pool(page, f"{dashboard}?seq=100")
    page.locator(".figure").first.wait_for()
    box = page.locator(CANVAS).bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert box["y"] + box["height"] <= height, "the whole pool is in view without scrolling"
    assert box["width"] * box["height"] > 0.25 * width * height
    for selector in (".figure", ".controls > *", ".legend > span"):
        cut = page.locator(selector).evaluate_all(
            "all => all.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.innerText)"
        )
        assert cut == [], selector
    page.close()
