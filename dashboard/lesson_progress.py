"""Where a learner is, and what was guessed: in the address, and in the browser's session."""

import streamlit as st

from dashboard.lessons import LESSONS
from dashboard.lessons.lesson import Lesson

LESSON, STEP = "lesson", "step"
"""Query parameters: a lesson's name, and a question's number from 1 on."""
PLACED = "lessons-placed"
"""The question that the pool was brought to; it is brought there once."""
SKIPPED = "skipped"
"""In place of a guess: the answer was asked for without one."""
_SAID = "lessons-said"

Place = tuple[str, int]
"""A lesson's name and a question's number."""


def lesson_here() -> tuple[Lesson | None, str | None]:
    """The lesson of the address, and the name that stands there."""
    name = st.query_params.get(LESSON)
    return next((lesson for lesson in LESSONS if lesson.name == name), None), name


def step_here(lesson: Lesson) -> int:
    """The number of the question of the address, or of the nearest one."""
    text = st.query_params.get(STEP, "1")
    number = int(text) if text.isdecimal() else 1
    return max(1, min(number, len(lesson.steps)))


def go(lesson: str | None, number: int | None) -> None:
    """To a question, or to the list."""
    st.session_state.pop(PLACED, None)
    if lesson is None:
        st.query_params.clear()
    else:
        st.query_params.from_dict({LESSON: lesson, STEP: str(number)})


def said() -> dict[Place, int | float | str]:
    """What was guessed where: an option's number, a number, or SKIPPED."""
    return st.session_state.setdefault(_SAID, {})


def say(place: Place, guess: int | float | str) -> None:
    said()[place] = guess


def say_number(place: Place, key: str) -> None:
    """The guess in the input of `key`; without one it is skipped."""
    guess = st.session_state[key]
    say(place, SKIPPED if guess is None else guess)


def forget(place: Place) -> None:
    said().pop(place, None)
