"""The page in a real Chromium: pixels, hover and pin against the fold of the same trace."""

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
    running_dashboard,
    sample_pool,
)
from tests.dashboard.fake_engine import fake_engine
from tests.dashboard.simulated import SimulatedEngine, write_trace
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


def open_pool(page: Page, url: str) -> None:
    page.goto(url)
    page.locator(f"{CANVAS}[data-current=true][data-geometry]").wait_for(timeout=30_000)


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


def test_hover_and_pin_agree_with_the_fold(page: Page, tmp_path: Path) -> None:
    # A trace that ends with sequences still running and is at its end at once.
    engine = SimulatedEngine(48, seed=3, max_running=8, step_seconds=0.0)
    path = write_trace(tmp_path / "still.jsonl.zst", engine, steps=60)
    with TraceReader(path) as reader:
        state = PoolState(reader.header)
        for record in reader:
            state.apply(record)
    shared = next(block for block, owners in state.owners.items() if len(owners) > 1)
    partial = next(block for block in state.owners if state.filled[block] < state.block_size)
    with running_dashboard(str(path), tmp_path / "log.txt") as url:
        open_pool(page, url)
        for block in (shared, partial):
            expected = [
                f"{state.filled[block]} of {state.block_size} slots",
                f"ref count\n{state.ref_count[block]}\n",
                state.block_text(block).strip(),
            ]
            for sequence, index in state.owners[block].items():
                owner = state.sequences[sequence]
                expected.append(
                    f"sequence {sequence} of request {owner.request}, "
                    f"index {index} of {len(owner.table)}"
                )
            # The replay runs through its steps again now and then: the end state is what counts.
            assert_told(page, block, expected)
        page.mouse.down()
        page.mouse.up()
        pinned = page.locator(".tip.pinned", has_text=f"Block {partial}:")
        pinned.wait_for(state="visible")
        page.mouse.move(5, 5)
        page.locator(".tip.hover").wait_for(state="hidden")
        assert f"{state.filled[partial]} of {state.block_size} slots" in pinned.inner_text()
        pinned.get_by_role("button").click()
        pinned.wait_for(state="hidden")


def assert_told(page: Page, block: int, expected: list[str]) -> None:
    """The tooltip of a block comes to say everything that is expected."""
    wait_for(lambda: sample_pool(page), what="cells")

    def missing() -> list[str]:
        text = hover(page, sample_pool(page).geometry, block).replace("\n\n", "\n")
        return [part for part in expected if part not in text]

    wait_for(lambda: not missing(), what=f"a tip of block {block} with all of {expected}")


def test_a_change_of_theme_keeps_one_canvas_and_one_socket(page: Page, dashboard: str) -> None:
    sockets = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    open_pool(page, dashboard)
    before = page.locator(CANVAS).evaluate(
        "canvas => getComputedStyle(canvas).getPropertyValue('--st-background-color')"
    )
    page.emulate_media(color_scheme="dark")
    wait_for(
        lambda: (
            before
            != page.locator(CANVAS).evaluate(
                "canvas => getComputedStyle(canvas).getPropertyValue('--st-background-color')"
            )
        ),
        what="the dark theme",
    )
    # The next painted frame must be in the new palette: sample_pool knows no other colour.
    wait_for(lambda: _sampled(page), what="cells in the dark palette")
    assert page.locator(CANVAS).count() == 1
    assert len([url for url in sockets if url.endswith("/glasspool/pool")]) == 1


def _sampled(page: Page) -> bool:
    try:
        return sample_pool(page) is not None
    except AssertionError:
        return False


def test_an_engine_that_goes_away_is_shown_as_gone(page: Page, tmp_path: Path) -> None:
    with fake_engine(SimulatedEngine(48, seed=3, max_running=8)) as engine:
        engine.step(30)
        with running_dashboard(engine.url, tmp_path / "log.txt") as url:
            open_pool(page, url)
            page.get_by_test_id("stMetric").first.wait_for()
            engine.close()
            page.locator(f"{CANVAS}[data-current=false]").wait_for()
            page.get_by_test_id("stAlert").get_by_text("Not connected").wait_for()
            assert page.get_by_test_id("stMetric").count() == 0
            assert "Not connected" in page.locator(".notice").inner_text()


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (800, 600)])
def test_nothing_is_cut_off(browser: Browser, dashboard: str, width: int, height: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": height})
    open_pool(page, dashboard)
    page.get_by_test_id("stMetric").first.wait_for()
    box = page.locator(CANVAS).bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    cut = page.get_by_test_id("stMetric").evaluate_all(
        "all => all.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.innerText)"
    )
    assert cut == []
    if height == 900:
        assert box["y"] + box["height"] <= height, "figures and pool fit the first screen"
    page.close()
