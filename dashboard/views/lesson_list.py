"""The list of lessons: what each claims, and how much of it has been answered."""

import streamlit as st

from dashboard.lesson_progress import go, said
from dashboard.lessons import LESSONS
from dashboard.lessons.lesson import Lesson
from dashboard.standing import small


def lesson_list() -> None:
    """Draws it."""
    st.markdown("### Lessons")
    st.markdown(
        "Each is a recorded run of a real model. Guess first; the answer is read from its events."
    )
    columns = [column.container(gap="xsmall") for column in st.columns(2, gap="medium")]
    half = (len(LESSONS) + 1) // 2
    for number, lesson in enumerate(LESSONS):
        key = f"lesson-card-{lesson.name}"
        with columns[number // half].container(border=True, gap=None, key=key):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.button(
                    f"**{number + 1}. {lesson.title}**",
                    key=f"lesson-{lesson.name}",
                    type="tertiary",
                    on_click=go,
                    args=(lesson.name, 1),
                )
                st.space("stretch")
                small(_progress(lesson))
            st.markdown(lesson.claim)


def _progress(lesson: Lesson) -> str:
    answered = sum((lesson.name, step) in said() for step in range(1, len(lesson.steps) + 1))
    if not answered:
        return f"{len(lesson.steps)} questions"
    return f"{answered} of {len(lesson.steps)} answered"
