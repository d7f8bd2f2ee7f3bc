"""Every lesson in a real Chromium at a projector's size: guess, answer, and the pool at the moment."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from dashboard.lessons import LESSONS
from dashboard.lessons.lesson import Choice, Lesson, Moment, Step
from dashboard.lessons.run import Run
from dashboard.source import DEMO_DATA, TRACE_SUFFIX
from tests.dashboard.browser import (
    CANVAS,
    chromium,
    needs_chromium,
    running_dashboard,
    serious_faults,
)
from tests.dashboard.test_pages_browser import is_dark
from tests.dashboard.waiting import wait_for

pytestmark = needs_chromium

WIDTH, HEIGHT = 1280, 720
PATIENCE = 30_000
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_dashboard([], tmp_path_factory.mktemp("dashboard") / "log.txt") as url:
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


@pytest.fixture(scope="module")
def steps() -> dict[str, list[Step]]:
    """What each lesson says of its traces."""
    runs = {
        trace: Run.read(DEMO_DATA / f"{trace}{TRACE_SUFFIX}")
        for lesson in LESSONS
        for trace in lesson.traces
    }
    found = {}
    for lesson in LESSONS:
        facts = lesson.read({trace: runs[trace] for trace in lesson.traces})
        found[lesson.name] = [step(facts) for step in lesson.steps]
    return found


def shown(page: Page, moment: Moment) -> None:
    """The pool is at the moment, with what it selects."""
    page.locator(f"{CANVAS}[data-current=true][data-seq='{moment.seq}']").wait_for()
    banner = page.locator(".banners")
    if moment.request is None:
        expect(banner).not_to_contain_text("Request ")
    else:
        expect(banner).to_contain_text(f"Request {moment.request} holds")


def in_view(what: Locator) -> bool:
    box = what.bounding_box()
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= HEIGHT


def settled(page: Page) -> None:
    """The page's script has run to its end: what is clicked now is not of the step before."""
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()


def guess(page: Page, step: Step) -> None:
    if isinstance(step.question, Choice):
        page.get_by_role("button", name=step.question.options[0], exact=True).click()
    else:
        page.get_by_label("Your guess").fill("3")
        page.get_by_role("button", name="See the events").click()


def walk(page: Page, lesson: Lesson, number: int, step: Step) -> None:
    """One question: asked beside the pool, guessed, answered by the events."""
    page.get_by_role("heading", name=step.title, exact=True).wait_for()
    settled(page)
    expect(page.get_by_text(f"{number} of {len(lesson.steps)}", exact=True)).to_be_visible()
    shown(page, step.at)
    assert in_view(page.locator(CANVAS)), "the pool is cut off"
    assert in_view(page.get_by_text(step.ask, exact=True)), "the question is not in view"
    expect(page.get_by_text(step.source)).to_have_count(0)
    guess(page, step)
    verdict = page.get_by_test_id("stAlert")
    expect(verdict).to_contain_text(f"{step.source}: {step.question.answer_words}.")
    expect(verdict).to_contain_text("You said ")
    shown(page, step.shows)
    assert in_view(verdict), "the answer is not in view"
    assert in_view(page.locator(CANVAS)), "the answer pushes the pool out of view"
    assert page.get_by_test_id("stException").count() == 0


def next_button(page: Page) -> Locator:
    return page.locator(".st-key-lesson-next").get_by_role("button", name=re.compile("^Next"))


@pytest.mark.timeout(900)
def test_every_lesson_can_be_walked_from_the_list_to_its_last_answer(
    page: Page, dashboard: str, steps: dict[str, list[Step]]
) -> None:
    origin, strangers, errors = urlsplit(dashboard).netloc, [], []
    page.on(
        "request",
        lambda request: (
            urlsplit(request.url).netloc in ("", origin) or strangers.append(request.url)
        ),
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{dashboard}/lessons")
    page.get_by_role("button", name=f"1. {LESSONS[0].title}").click()
    for lesson in LESSONS:
        for number, step in enumerate(steps[lesson.name], 1):
            walk(page, lesson, number, step)
            if number == len(lesson.steps):
                expect(page.get_by_test_id("stCode")).to_contain_text("glasspool ")
            next_button(page).click()
    page.locator(".st-key-lesson-all").get_by_role("button").first.click()
    page.get_by_role("heading", name="Lessons").wait_for()
    for lesson in LESSONS:
        done = f"{len(lesson.steps)} of {len(lesson.steps)} answered"
        expect(page.get_by_text(done).first).to_be_visible()
    assert page.get_by_text(re.compile(r"^\d+ questions$")).count() == 0
    assert not errors, errors
    assert not strangers, f"the page asked elsewhere: {strangers}"


def test_a_link_leads_to_a_step_and_leaving_keeps_its_source(
    page: Page, dashboard: str, steps: dict[str, list[Step]]
) -> None:
    told = steps["copy-on-write"]
    page.goto(f"{dashboard}/lessons?lesson=copy-on-write&step=2")
    page.get_by_role("heading", name=told[1].title, exact=True).wait_for()
    shown(page, told[1].at)
    page.keyboard.press("b")
    page.get_by_role("heading", name=told[0].title, exact=True).wait_for()
    page.wait_for_url(re.compile("step=1"))
    page.keyboard.press("n")
    page.get_by_role("heading", name=told[1].title, exact=True).wait_for()
    page.wait_for_url(re.compile("step=2"))
    page.go_back()
    page.get_by_role("heading", name=told[0].title, exact=True).wait_for()
    shown(page, told[0].at)
    page.get_by_role("link", name="Pool", exact=True).click()
    page.get_by_text("Who holds the pool").wait_for()
    source = f"{told[0].at.trace}{TRACE_SUFFIX}"
    expect(page.get_by_role("combobox", name=re.compile("Source"))).to_have_value(source)
    page.wait_for_url(re.compile(rf"source={re.escape(source)}&seq={told[0].at.seq}\b"))


def test_two_runs_of_a_lesson_are_compared(page: Page, dashboard: str) -> None:
    lesson = next(lesson for lesson in LESSONS if lesson.name == "preemption-tax")
    page.goto(f"{dashboard}/lessons?lesson={lesson.name}&step={len(lesson.steps)}")
    page.get_by_role("button", name="Show without a guess").click()
    page.get_by_role("button", name="Compare the two runs").click()
    page.get_by_text("Where they part").wait_for()
    for run, trace in zip("AB", lesson.change.compare, strict=True):
        chosen = page.get_by_role("combobox", name=re.compile(f"Run {run}"))
        expect(chosen).to_have_value(f"{trace}{TRACE_SUFFIX}")


def test_lessons_are_free_of_serious_accessibility_faults(page: Page, dashboard: str) -> None:
    for path in ("lessons", "lessons?lesson=three-wastes&step=1"):
        page.emulate_media(color_scheme="light")
        page.goto(f"{dashboard}/{path}")
        if "?" in path:
            page.get_by_role("button", name="Show without a guess").click()
            page.get_by_test_id("stVegaLiteChart").locator("canvas").wait_for()
        else:
            page.get_by_role("heading", name="Lessons").wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            wait_for(lambda scheme=scheme: is_dark(page) == (scheme == "dark"), what=scheme)
            assert serious_faults(page) == [], (path, scheme)
