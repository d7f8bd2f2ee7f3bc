"""What a lesson tells its reader to run at the end: it runs, as it stands there."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.lessons import LESSONS
from dashboard.lessons.lesson import Lesson
from tests.servers import EngineServer

ROOT = Path(__file__).parents[2]


def asked(lesson: Lesson) -> list[str]:
    """The command without its first word."""
    return shlex.split(lesson.change.command)[1:]


def lessons_with(*commands: str):
    chosen = [lesson for lesson in LESSONS if asked(lesson)[0] in commands]
    return pytest.mark.parametrize("lesson", chosen, ids=lambda lesson: lesson.name)


def test_each_command_is_tried_here_or_measures_for_minutes() -> None:
    kinds = {lesson.name: asked(lesson)[0] for lesson in LESSONS}
    assert set(kinds.values()) == {"serve", "simulate", "lab", "bench"}
    assert [name for name, kind in kinds.items() if kind == "bench"] == ["batch-pays"]


@lessons_with("simulate", "lab")
def test_what_if_is_answered_with_a_row_for_every_case(lesson: Lesson) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "engine.cli", *asked(lesson)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    for option in asked(lesson):
        name, _, values = option.partition("=")
        others = [v for v in values.split(",") if values and f"{name}={v}" not in ran.stdout]
        assert len(others) <= 1, "all but the one that the run was recorded with have a row"


@lessons_with("serve")
def test_an_engine_starts_with_these_options(lesson: Lesson, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = asked(lesson)[1:]
    # Without a model it starts at once; what the lesson changes is the pool's, not the model's.
    with EngineServer(*options, "--model", "none") as server:
        assert server.complete("Hello", max_tokens=4).status_code == 200
    for recorded in tmp_path.iterdir():
        assert recorded.name in options
