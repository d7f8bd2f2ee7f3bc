"""The page "Lessons": a question beside the pool, the learner's guess, and what the events say.

The address says where one is: `?lesson=NAME&step=NUMBER`. Guesses stay for as long as the browser
session does; answers are read from the traces each time, see dashboard/lessons.
"""

from pathlib import Path

import streamlit as st

from dashboard.canvas import pool_canvas
from dashboard.charts_lessons import bars_chart, lines_chart
from dashboard.feeds import feed_of
from dashboard.lesson_progress import (
    PLACED,
    SKIPPED,
    forget,
    go,
    lesson_here,
    said,
    say,
    say_number,
    step_here,
)
from dashboard.lessons import LESSONS
from dashboard.lessons.lesson import (
    Bars,
    Choice,
    Lesson,
    LessonError,
    Lines,
    Moment,
    Number,
    Step,
    Table,
)
from dashboard.lessons.run import Run
from dashboard.links import go_to_page
from dashboard.markdown import escape
from dashboard.session import Session
from dashboard.sessions import SOURCE_KEY, TOKEN_KEY, catalog, current_session
from dashboard.source import DEMO_DATA, TRACE_SUFFIX, SourceError, TraceSource
from dashboard.views.compare import choose_runs
from dashboard.views.lesson_list import lesson_list
from engine.events import FoldError, TraceError

_SHORT = 14
"""Characters of options that stand side by side."""
_RUNS_KEPT = 4
_FACTS_KEPT = 64

_STYLE = """
<style>
  .stMainBlockContainer { padding-bottom: 0; }
  .st-key-lesson-text p, .st-key-lesson-text li { font-size: 1.16rem; line-height: 1.45; }
  .st-key-lesson-text label p { font-size: 1.1rem; }
  .st-key-lesson-text button p { font-size: 1.1rem; text-align: left; }
  [class*="st-key-lesson-card-"] { padding: 0.3rem 0.9rem 0.45rem; }
  [class*="st-key-lesson-card-"] p { font-size: 1.08rem; }
  @media (min-width: 641px) {
    .st-key-lesson-text { max-height: calc(100vh - 7.6rem); overflow-y: auto; padding-right: 0.6rem; }
  }
</style>
"""


def lessons_page() -> None:
    """Draws the list, or the lesson and the step of the address."""
    st.html(_STYLE)
    lesson, name = lesson_here()
    if lesson is None:
        if name is not None:
            st.warning(f"There is no lesson {escape(repr(name))}.", icon=":material/school:")
        lesson_list()
        return
    missing = [trace for trace in lesson.traces if not _path(trace).is_file()]
    if missing:
        names = ", ".join(f"demo_data/{trace}{TRACE_SUFFIX}" for trace in missing)
        _cannot(lesson, f"{names} is not here")
        return
    try:
        _lesson(lesson)
    except SourceError as error:
        st.error(escape(str(error)), icon=":material/error:")
    except (TraceError, FoldError, LessonError) as error:
        _cannot(lesson, str(error))


def _cannot(lesson: Lesson, why: str) -> None:
    _to_the_list()
    st.warning(
        f"The lesson “{lesson.title}” cannot be told: {escape(why)}. `make demo-data` records its "
        "runs anew.",
        icon=":material/school:",
    )


def _to_the_list() -> None:
    st.button(
        "Lessons",
        icon=":material/list:",
        help="The list of all lessons",
        key="lesson-all",
        on_click=go,
        args=(None, None),
    )


# -- one lesson -----------------------------------------------------------------------------------


def _lesson(lesson: Lesson) -> None:
    for trace in lesson.traces:
        catalog().add(TraceSource(_path(trace)))
    session = current_session()
    facts = _facts(lesson.name, tuple((trace, _stamp(trace)) for trace in lesson.traces))
    number = step_here(lesson)
    step = lesson.steps[number - 1](facts)
    revealed = (lesson.name, number) in said()
    moment = step.shows if revealed else step.at
    _place(session, moment, (lesson.name, number, revealed))
    text, pool = st.columns([5, 7], gap="medium")
    with text:
        _bar(lesson, number)
        with st.container(key="lesson-text", gap="small"):
            st.markdown(f"### {step.title}")
            st.markdown(step.tell)
            st.markdown(f"**{step.ask}**")
            if revealed:
                _answer(lesson, number, step)
            else:
                _question(lesson, number, step.question)
    with pool:
        pool_canvas(st.session_state[TOKEN_KEY], with_pool=True, beside=True)


def _bar(lesson: Lesson, number: int) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        _to_the_list()
        st.markdown(f"**{lesson.title}** :small[{number} of {len(lesson.steps)}]")
        st.space("stretch")
        st.button(
            "Back",
            icon=":material/chevron_left:",
            help="The question before (B)",
            shortcut="b",
            key="lesson-back",
            disabled=number == 1,
            on_click=go,
            args=(lesson.name, number - 1),
        )
        last = number == len(lesson.steps)
        following = LESSONS[(LESSONS.index(lesson) + 1) % len(LESSONS)]
        st.button(
            "Next lesson" if last else "Next",
            icon=":material/chevron_right:",
            icon_position="right",
            help=f"{following.title} (N)" if last else "The next question (N)",
            shortcut="n",
            key="lesson-next",
            on_click=go,
            args=(following.name, 1) if last else (lesson.name, number + 1),
        )


def _question(lesson: Lesson, number: int, question: Number | Choice) -> None:
    place = (lesson.name, number)
    if isinstance(question, Choice):
        short = max(map(len, question.options)) <= _SHORT
        with st.container(horizontal=short, gap="small"):
            for option, text in enumerate(question.options):
                st.button(
                    text,
                    key=f"lesson-option-{option}",
                    width="content" if short else "stretch",
                    on_click=say,
                    args=(place, option),
                )
    else:
        key = f"lesson-guess-{lesson.name}-{number}"
        label = f"Your guess, in {question.measure()}" if question.measure() else "Your guess"
        with (
            st.form("lesson-form", border=False),
            st.container(horizontal=True, vertical_alignment="bottom", gap="small"),
        ):
            st.number_input(
                label,
                value=None,
                step=1.0 if question.digits else 1,
                format=f"%.{question.digits}f" if question.digits else "%d",
                key=key,
                width=240,
            )
            st.form_submit_button("See the events", on_click=say_number, args=(place, key))
    with st.container(horizontal=True, gap="small"):
        st.button(
            "Show without a guess",
            type="tertiary",
            key="lesson-skip",
            on_click=say,
            args=(place, SKIPPED),
        )
        _again()


def _answer(lesson: Lesson, number: int, step: Step) -> None:
    place = (lesson.name, number)
    guess, question = said()[place], step.question
    verdict = f"{step.source}: **{escape(question.answer_words)}**."
    if guess == SKIPPED:
        st.info(verdict, icon=":material/visibility:")
    elif question.right(guess):
        st.success(f"You said {escape(question.words(guess))}. {verdict}", icon=":material/check:")
    else:
        st.warning(
            f"You said {escape(question.words(guess))}. {verdict}", icon=":material/arrow_forward:"
        )
    st.markdown(step.because)
    _exhibit(step, key=f"lesson-{lesson.name}-{number}")
    with st.container(horizontal=True, gap="small"):
        st.button(
            "Ask again",
            type="tertiary",
            icon=":material/replay:",
            key="lesson-again",
            help="Forget the guess: back to the moment before the answer",
            on_click=forget,
            args=(place,),
        )
        _again()
    if number == len(lesson.steps):
        _change(lesson)


def _again() -> None:
    st.button(
        "Back to the moment",
        type="tertiary",
        icon=":material/my_location:",
        key="lesson-moment",
        help="Where this question is asked or answered, if you have played on",
        on_click=lambda: st.session_state.pop(PLACED, None),
    )


def _exhibit(step: Step, key: str) -> None:
    match step.exhibit:
        case Bars():
            bars_chart(step.exhibit, key)
        case Lines():
            lines_chart(step.exhibit, key)
        case Table(columns, rows):
            st.table([dict(zip(columns, row, strict=True)) for row in rows])


def _change(lesson: Lesson) -> None:
    change = lesson.change
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**Change it and run it.** {change.text}")
        st.code(change.command, language="bash", wrap_lines=True)
        if change.compare is not None and all(_path(name).is_file() for name in change.compare):
            a, b = (catalog().add(TraceSource(_path(name))) for name in change.compare)
            if st.button(
                "Compare the two runs", icon=":material/compare_arrows:", key="lesson-compare"
            ):
                choose_runs(a, b)
                go_to_page("compare")


# -- the moment -----------------------------------------------------------------------------------


def _place(session: Session, moment: Moment, key: tuple[str, int, bool]) -> None:
    """Bring the session to the moment, once: then it is the learner who plays."""
    name = catalog().add(TraceSource(_path(moment.trace)))
    st.session_state[SOURCE_KEY] = name
    feed = feed_of(catalog()[name])
    if session.feed is feed and st.session_state.get(PLACED) == key:
        return
    if session.feed is feed:
        session.go(moment.seq)
    else:
        session.open(feed, seq=moment.seq)
    session.select(request=moment.request, block=moment.block)
    st.session_state[PLACED] = key


# -- facts ----------------------------------------------------------------------------------------


def _path(trace: str) -> Path:
    return DEMO_DATA / f"{trace}{TRACE_SUFFIX}"


def _stamp(trace: str) -> tuple[int, int]:
    stat = _path(trace).stat()
    return stat.st_mtime_ns, stat.st_size


@st.cache_resource(show_spinner="Reading the recorded run …", max_entries=_RUNS_KEPT)
def _run(trace: str, stamp: tuple[int, int]) -> Run:
    return Run.read(_path(trace))


@st.cache_resource(show_spinner="Reading the events …", max_entries=_FACTS_KEPT)
def _facts(name: str, traces: tuple[tuple[str, tuple[int, int]], ...]) -> object:
    """What a lesson found in its traces; read anew where one of the files has changed."""
    lesson = next(lesson for lesson in LESSONS if lesson.name == name)
    return lesson.read({trace: _run(trace, stamp) for trace, stamp in traces})
