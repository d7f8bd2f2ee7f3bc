"""The page "Lessons" in Streamlit's own test runner: guesses, verdicts, moments, and what is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.chart_spec import STATES
from dashboard.charts_lessons import bars_spec, lines_spec
from dashboard.feeds import close_feeds
from dashboard.lessons import LESSONS
from dashboard.lessons.lesson import Choice, Lesson, Number, Step
from dashboard.lessons.run import Run
from dashboard.source import DEMO_DATA, SOURCE_VARIABLE, TRACE_SUFFIX
from tests.dashboard.apps import page_app, session_of, texts


@pytest.fixture(autouse=True)
def nothing_outlives_a_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SOURCE_VARIABLE, raising=False)
    st.cache_resource.clear()
    yield
    close_feeds()
    st.cache_resource.clear()


def lesson_of(name: str) -> Lesson:
    return next(lesson for lesson in LESSONS if lesson.name == name)


def step_of(lesson: Lesson, number: int) -> Step:
    runs = {name: Run.read(DEMO_DATA / f"{name}{TRACE_SUFFIX}") for name in lesson.traces}
    return lesson.steps[number - 1](lesson.read(runs))


def press(app: AppTest, key: str) -> None:
    app.button(key=key).click().run(timeout=30)
    assert not app.exception, app.exception[0].stack_trace


def test_the_list_has_every_lesson_with_its_claim_and_progress() -> None:
    app = page_app("lessons")
    said = texts(app)
    for lesson in LESSONS:
        assert lesson.claim in said
        assert any(lesson.title in button.label for button in app.button)
    assert f"{len(LESSONS[0].steps)} questions" in said
    press(app, f"lesson-{LESSONS[0].name}")
    assert app.query_params["lesson"] == LESSONS[0].name
    press(app, "lesson-skip")
    press(app, "lesson-all")
    assert f"1 of {len(LESSONS[0].steps)} answered" in texts(app)


def test_a_guess_is_compared_with_the_answer_and_the_pool_moves_to_it() -> None:
    lesson = lesson_of("seventeenth-token")
    step = step_of(lesson, 1)
    assert isinstance(step.question, Number)
    app = page_app("lessons", lesson=lesson.name)
    look = session_of(app).look()
    assert look.feed.source_name == f"{step.at.trace}{TRACE_SUFFIX}"
    assert not look.playing
    assert session_of(app).restless or look.seq == step.at.seq
    assert step.question.answer_words not in texts(app).partition(step.ask)[2]
    app.number_input[0].set_value(7)
    next(b for b in app.button if b.label == "See the events").click().run(timeout=30)
    said = texts(app)
    assert "You said 7 blocks" in said
    assert f"The events say: **{step.question.answer_words}**" in said
    assert step.because in said
    assert app.warning
    assert not app.success
    chosen = session_of(app).selection
    assert (chosen.request, chosen.block) == (step.shows.request, step.shows.block)


def test_a_right_choice_is_said_to_be_right_and_kept_while_moving_between_steps() -> None:
    lesson = lesson_of("pool-runs-dry")
    step = step_of(lesson, 1)
    assert isinstance(step.question, Choice)
    app = page_app("lessons", lesson=lesson.name, step="1")
    press(app, f"lesson-option-{step.question.answer}")
    assert app.success
    press(app, "lesson-next")
    assert app.query_params["step"] == "2"
    assert not app.success
    press(app, "lesson-back")
    assert app.success
    press(app, "lesson-again")
    assert not app.success
    press(app, "lesson-skip")
    assert app.info
    assert "You said" not in texts(app)


def test_the_last_step_offers_something_to_run_and_two_runs_to_compare() -> None:
    lesson = lesson_of("sharing")
    app = page_app("lessons", lesson=lesson.name, step=str(len(lesson.steps)))
    assert not app.code
    press(app, "lesson-skip")
    assert app.code[0].value == lesson.change.command
    assert any(button.key == "lesson-compare" for button in app.button)


def test_a_learner_who_plays_on_is_left_alone_until_asked_back() -> None:
    lesson = lesson_of("block-table")
    step = step_of(lesson, 1)
    app = page_app("lessons", lesson=lesson.name)
    session_of(app).go(5)
    app.run(timeout=30)
    assert session_of(app)._target() == 5
    press(app, "lesson-moment")
    assert session_of(app)._target() == step.at.seq
    session_of(app).go(5)
    press(app, "lesson-all")
    press(app, f"lesson-{lesson.name}")
    assert session_of(app)._target() == step.at.seq


def test_a_step_that_is_not_there_is_the_nearest_one() -> None:
    lesson = lesson_of("sharing")
    for asked, title in (("99", step_of(lesson, 3).title), ("x", step_of(lesson, 1).title)):
        assert f"### {title}" in texts(page_app("lessons", lesson=lesson.name, step=asked))


def test_a_lesson_that_is_not_there_is_named_above_the_list() -> None:
    said = texts(page_app("lessons", lesson="no-such"))
    assert "There is no lesson" in said
    assert LESSONS[0].claim in said


def test_a_trace_that_is_not_here_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.views.lessons.DEMO_DATA", tmp_path)
    app = page_app("lessons", lesson="sharing")
    assert len(app.warning) == 1
    assert "parallel" in app.warning[0].value
    assert "make demo-data" in app.warning[0].value
    press(app, "lesson-all")
    assert LESSONS[0].claim in texts(app)


def test_a_trace_without_what_the_lesson_is_about_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.views.lessons.DEMO_DATA", tmp_path)
    other = (DEMO_DATA / f"block-table{TRACE_SUFFIX}").read_bytes()
    for name in lesson_of("sharing").traces:
        (tmp_path / f"{name}{TRACE_SUFFIX}").write_bytes(other)
    app = page_app("lessons", lesson="sharing")
    assert "has no fork" in app.warning[0].value
    (tmp_path / f"block-table{TRACE_SUFFIX}").write_bytes(b"no trace")
    assert "block" in page_app("lessons", lesson="block-table").warning[0].value


def test_a_legend_fits_the_narrow_column_of_a_lesson() -> None:
    colours = tuple((f"part {number}", state) for number, state in enumerate(STATES[:5]))
    for spec, layer in (
        (bars_spec("slots", 2, 100.0, colours, "#000"), 0),
        (lines_spec("step", "blocks", colours), None),
    ):
        part = spec if layer is None else spec["layer"][layer]
        assert part["encoding"]["color"]["legend"]["columns"] <= 3


def test_answers_are_counted_in_what_was_asked_for_and_told_in_words() -> None:
    copies = step_of(lesson_of("copy-on-write"), 1)
    assert "How many copies" in copies.ask
    assert copies.question.answer_words.endswith(" copies")
    assert "shorter than a block" in step_of(lesson_of("prefix-cache"), 4).tell
