"""The page "Lab" in a real Chromium: inputs change figures, maps and charts."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboard.charts_lab import LINES
from dashboard.lab_choices import SAMPLE
from engine.lab import (
    DynamicRun,
    Kind,
    LabSettings,
    StaticUsage,
    lab_requests,
    read_lengths,
    run_all,
    static_usage,
)
from tests.dashboard.browser import (
    CANVAS,
    chromium,
    needs_chromium,
    running_dashboard,
    serious_faults,
)
from tests.dashboard.test_pages_browser import chart, tip_at
from tests.dashboard.waiting import wait_for

pytestmark = needs_chromium

COUNT = 80
MAP, SWEEP = 1, 3
"""Charts by their place on the page."""
SLOW = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_dashboard([], tmp_path_factory.mktemp("dashboard") / "log.txt") as url:
        yield url


@pytest.fixture
def page(browser: Browser, dashboard: str) -> Iterator[Page]:
    """The page on COUNT lengths. It must raise no error, and ask nobody but the dashboard."""
    page = browser.new_page(viewport={"width": 1400, "height": 3400}, color_scheme="light")
    origin, strangers, errors = urlsplit(dashboard).netloc, [], []
    page.on(
        "request",
        lambda request: (
            urlsplit(request.url).netloc in ("", origin) or strangers.append(request.url)
        ),
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{dashboard}/lab")
    page.set_default_timeout(SLOW)
    page.get_by_text("2,000 sequences, 730,840 tokens").wait_for()
    page.get_by_text("A GPU's ratios differ").wait_for()
    enter(page, "Sequences", COUNT)
    page.get_by_text(f"{COUNT} sequences, ").wait_for()
    yield page
    assert page.get_by_test_id("stException").count() == 0
    assert not errors, errors
    assert not strangers, f"the page asked elsewhere: {strangers}"
    page.close()


def enter(page: Page, label: str, value: int) -> None:
    field = page.get_by_role("spinbutton", name=label)
    field.fill(str(value))
    field.press("Enter")


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=label).click()
    page.get_by_role("option", name=option, exact=True).click()


def static_line(usage: StaticUsage) -> str:
    return f"{100 * usage.utilisation:.1f} %"


def dynamic_line(run: DynamicRun) -> str:
    running = f"{run.kind} runs {run.mean_running:.1f} sequences on average"
    return f"{running} and is done at step {run.steps:,}"


def results(settings: LabSettings, memory: int) -> tuple[dict, dict]:
    sample = read_lengths("sample", COUNT)
    usages = static_usage(sample.totals, settings)
    runs = run_all(lab_requests(sample.lengths, 10, 0), memory, settings)
    return {usage.kind: usage for usage in usages}, {run.kind: run for run in runs}


def sentence(page: Page, begins: str):
    return page.get_by_role("listitem").filter(has_text=begins)


def assert_says(page: Page, settings: LabSettings, memory: int) -> dict[Kind, DynamicRun]:
    usages, runs = results(settings, memory)
    for kind, usage in usages.items():
        expect(sentence(page, f"{kind} ").first).to_contain_text(static_line(usage), timeout=SLOW)
    for kind in (Kind.NAIVE, Kind.EXACT, Kind.PAGED):
        line = sentence(page, "What it buys")
        expect(line).to_contain_text(dynamic_line(runs[kind]), timeout=SLOW)
    return runs


def test_inputs_change_the_figures_to_what_the_library_gives(page: Page) -> None:
    assert_says(page, LabSettings(), 16_384)
    choose(page, "max_model_len", "8,192")
    assert_says(page, LabSettings(max_model_len=8192), 16_384)
    choose(page, "Block size", "128")
    assert_says(page, LabSettings(max_model_len=8192, block_size=128), 16_384)
    choose(page, "Memory (slots)", "8,192")
    assert_says(page, LabSettings(max_model_len=8192, block_size=128), 8192)


def test_the_map_shows_each_segment_where_it_lies(page: Page) -> None:
    runs = assert_says(page, LabSettings(), 16_384)
    moment = runs[Kind.EXACT].moments[len(runs[Kind.EXACT].moments) // 2]
    width = 16_384 // LINES
    segment = next(
        found
        for found in moment.address_map()
        if found.sequence is not None and found.end <= width and found.end - found.start > 60
    )
    box = chart(page, MAP).bounding_box()
    # Scales are the chart's own: sweep the exact allocator's first line for the segment's tooltip.
    for y in range(int(0.42 * box["height"]), int(0.60 * box["height"]), 7):
        for x in range(60, int(box["width"]) - 10, 25):
            tip = tip_at(page, box["x"] + x, box["y"] + y)
            if tip and tip["allocator"] == "exact" and tip["first slot"] == f"{segment.start:,}":
                assert tip["sequence"] == f"{segment.sequence:,}"
                assert tip["slots in a row"] == f"{segment.end - segment.start:,}"
                return
    pytest.fail(f"no tooltip tells of {segment}")


def test_another_moment_changes_the_map(page: Page) -> None:
    assert_says(page, LabSettings(), 16_384)
    before = chart(page, MAP).screenshot()
    handle = page.get_by_role("slider")
    handle.focus()
    for _ in range(5):
        handle.press("ArrowRight")
    wait_for(lambda: chart(page, MAP).screenshot() != before, seconds=30, what="another map")


def test_choices_stay_while_another_page_is_shown(page: Page) -> None:
    choose(page, "Block size", "32")
    assert_says(page, LabSettings(block_size=32), 16_384)
    page.get_by_role("link", name="Pool").click()
    page.locator(CANVAS).wait_for()
    page.get_by_role("link", name="Lab").click()
    assert_says(page, LabSettings(block_size=32), 16_384)


def test_inputs_show_what_is_computed_after_they_were_away(page: Page) -> None:
    choose(page, "Memory (slots)", "8,192")
    choose(page, "Lengths", "A file")
    page.get_by_text("Name a file of lengths above").wait_for()
    expect(page.get_by_role("combobox", name="Memory (slots)")).to_have_count(0)
    choose(page, "Lengths", SAMPLE)
    assert_says(page, LabSettings(), 8192)
    expect(page.get_by_role("combobox", name="Memory (slots)")).to_have_value("8,192")
    for label, value in (
        ("Sequences", COUNT),
        ("Requests", 500),
        ("Steps between arrivals", "10.0"),
    ):
        expect(page.get_by_role("spinbutton", name=label)).to_have_value(str(value))


def test_the_page_has_no_fault_that_axe_finds(page: Page) -> None:
    assert_says(page, LabSettings(), 16_384)
    chart(page, SWEEP)
    assert serious_faults(page) == []
