"""The lessons without a browser: each claim from its trace, and traces that do not bear a claim out."""

import math
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest
import typer

from dashboard.lessons import LESSONS
from dashboard.lessons.lesson import Choice, Lesson, LessonError, Moment, Number, Step
from dashboard.lessons.run import Run
from dashboard.source import DEMO_DATA, TRACE_SUFFIX
from engine.cli import app
from engine.events import FoldError, TraceError
from engine.events.records import (
    AllocationFailed,
    AnyEvent,
    CopyOnWrite,
    Durations,
    Evict,
    Fork,
    Preempt,
    PrefixLookup,
    RequestAdded,
)
from engine.events.records import Step as Record
from tests.dashboard.folding import folded

BY_NAME = {lesson.name: lesson for lesson in LESSONS}


@cache
def run_of(trace: str) -> Run:
    return Run.read(DEMO_DATA / f"{trace}{TRACE_SUFFIX}")


@cache
def facts_of(name: str) -> object:
    lesson = BY_NAME[name]
    return lesson.read({trace: run_of(trace) for trace in lesson.traces})


each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


@pytest.mark.parametrize(
    ("lesson", "claim"),
    [
        pytest.param(lesson, claim, id=f"{lesson.name}: {claim}")
        for lesson in LESSONS
        for claim in lesson.claims
    ],
)
def test_every_claim_holds_in_its_trace(lesson: Lesson, claim: str) -> None:
    assert lesson.claims[claim](facts_of(lesson.name)), facts_of(lesson.name)


def test_there_are_twelve_lessons_or_more_of_different_names() -> None:
    assert len(LESSONS) >= 12
    assert len(BY_NAME) == len(LESSONS)
    for lesson in LESSONS:
        assert len(lesson.steps) >= 3
        assert len(lesson.claims) >= 3
        assert lesson.change.command.startswith("glasspool ")


@each_lesson
def test_every_step_points_at_a_record_where_its_request_and_block_are(lesson: Lesson) -> None:
    for make in lesson.steps:
        step = make(facts_of(lesson.name))
        for moment in (step.at, step.shows):
            assert moment.trace in lesson.traces
            assert_moment_is_there(moment)


def assert_moment_is_there(moment: Moment) -> None:
    run = run_of(moment.trace)
    state = run.keyframe.seq if moment.seq == run.keyframe.seq else run.state_at(moment.seq).seq
    assert state == moment.seq
    assert moment.block is None or 0 <= moment.block < run.header.num_blocks
    if moment.request is not None:
        asked = {event.request for step in run.steps for event in step.events if has_name(event)}
        assert moment.request in asked


def has_name(event: AnyEvent) -> bool:
    return getattr(event, "request", None) is not None


@each_lesson
def test_every_question_has_an_answer_that_is_told_in_words(lesson: Lesson) -> None:
    for make in lesson.steps:
        step = make(facts_of(lesson.name))
        for text in (step.title, step.tell, step.ask, step.because, step.question.answer_words):
            assert text.strip()
            assert "None" not in text
            assert "nan" not in text.split()
        question = step.question
        if isinstance(question, Number):
            assert math.isfinite(question.answer)
            assert question.right(question.shown)
            assert not question.right(question.shown + question.slack + 1)
        else:
            assert [question.right(n) for n in range(len(question.options))].count(True) == 1


def test_a_number_is_right_within_its_slack_and_is_said_in_its_number() -> None:
    blocks = Number(1.0, "block")
    assert (blocks.answer_words, blocks.words(3)) == ("1 block", "3 blocks")
    assert Number(0.34, unit="times", digits=1, slack=0.1).right(0.4)
    assert not Number(0.34, unit="times", digits=1, slack=0.1).right(0.5)
    assert Number(51200.4, "").answer_words == "51,200"
    # A learner who says exactly what is then shown is right.
    assert Number(7.46, "slot", digits=1).right(7.5)
    for options, answer in ((("a", "b"), 2), (("a", "a"), 0), ((), 0)):
        with pytest.raises(ValueError, match="is no answer"):
            Choice(options, answer)


def test_a_prompt_is_alike_up_to_its_first_token_that_differs() -> None:
    facts = facts_of("prefix-cache")
    texts = [event.prompt_text for _, event in run_of("prefix-cache").events(RequestAdded)]
    for lookup, text in zip(facts.lookups, texts, strict=True):
        assert text[: lookup.alike] == texts[0][: lookup.alike]
        assert text[lookup.alike : lookup.alike + 1] != texts[0][
            lookup.alike : lookup.alike + 1
        ] or (text == texts[0])


# -- traces that were changed ----------------------------------------------------------------------


def without(*kinds: type) -> Callable[[Run], Run]:
    def drop(event: AnyEvent) -> bool:
        return isinstance(event, kinds)

    return lambda run: changed(run, lambda event: None if drop(event) else event)


def changed(run: Run, change: Callable[[AnyEvent], AnyEvent | None]) -> Run:
    steps = []
    for step in run.steps:
        events = [new for event in step.events if (new := change(event)) is not None]
        steps.append(msgspec.structs.replace(step, events=events))
    return Run(run.header, run.keyframe, steps)


def older_victims(run: Run) -> Run:
    """As if the youngest sequence had needed the blocks that were taken from the others."""
    youngest = max(event.sequence for _, event in run.events(Preempt))

    def change(event: AnyEvent) -> AnyEvent:
        if isinstance(event, Preempt):
            return msgspec.structs.replace(event, victim_of=youngest)
        return event

    return changed(run, change)


def no_misses(run: Run) -> Run:
    """As if every prompt had been found whole."""

    def change(event: AnyEvent) -> AnyEvent:
        if isinstance(event, PrefixLookup):
            whole = event.queried // run.block_size * run.block_size
            return msgspec.structs.replace(event, hit=whole)
        return event

    return changed(run, change)


def slower_batches(run: Run) -> Run:
    """As if a step took as long as it has sequences."""

    def slow(step: Record) -> Record:
        took = Durations(0.0, float(step.tokens.total), 0.0)
        return msgspec.structs.replace(step, durations=took)

    return Run(run.header, run.keyframe, [slow(step) for step in run.steps])


CHANGES = [
    ("copy-on-write", without(CopyOnWrite), LessonError),
    ("sharing", without(Fork), LessonError),
    ("beams", without(Fork), FoldError),
    ("eviction-order", without(Evict), FoldError),
    ("pool-runs-dry", without(Preempt), LessonError),
    ("pool-runs-dry", without(AllocationFailed), "an allocation fails in that very step"),
    (
        "pool-runs-dry",
        older_victims,
        "no victim of the whole run is older than who needed the block",
    ),
    ("preemption-tax", without(Preempt), "the small pool preempts, the ample one does not"),
    ("prefix-cache", without(PrefixLookup), LessonError),
    ("prefix-cache", no_misses, "other first words share nothing"),
    ("prefix-cache", no_misses, "the same prompt keeps its last token to compute"),
    ("batch-pays", slower_batches, "a larger batch costs less than its tokens"),
]


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    CHANGES,
    ids=[f"{name}-{number}" for number, (name, *_) in enumerate(CHANGES)],
)
def test_a_trace_that_was_changed_does_not_bear_the_lesson_out(
    name: str, change: Callable[[Run], Run], expected: str | type[Exception]
) -> None:
    """What the lesson is about is not there, the books do not add up, or a claim is false."""
    lesson = BY_NAME[name]
    refuted(lesson, {trace: change(run_of(trace)) for trace in lesson.traces}, expected)


def refuted(lesson: Lesson, runs: dict[str, Run], expected: str | type[Exception]) -> None:
    if isinstance(expected, str):
        assert not lesson.claims[expected](lesson.read(runs))
    else:
        with pytest.raises(expected):
            lesson.read(runs)


EXCHANGES = [
    ("sharing", {"parallel-sampling": "four-requests"}, LessonError),
    (
        "preemption-tax",
        {"pool-runs-dry": "pool-ample", "pool-ample": "pool-runs-dry"},
        "what is computed more is what is computed again",
    ),
    (
        "three-wastes",
        {"naive-reservation": "block-16"},
        "a reservation is mostly empty, even at its best",
    ),
    ("why-16", {"block-4": "block-128", "block-128": "block-4"}, "waste grows with the block size"),
    ("batch-pays", {"block-16": "naive-reservation"}, "so the whole run draws tokens faster"),
    ("prefix-cache", {"prefix-cache": "four-requests"}, LessonError),
    ("eviction-order", {"eviction-order": "prefix-cache"}, LessonError),
    ("multi-turn", {"multi-turn": "four-requests"}, "hits grow from turn to turn"),
    ("long-context", {"long-context": "pool-ample"}, "one request holds most of the pool"),
]


@pytest.mark.parametrize(
    ("name", "other", "expected"), EXCHANGES, ids=[name for name, *_ in EXCHANGES]
)
def test_another_run_does_not_bear_the_lesson_out(
    name: str, other: dict[str, str], expected: str | type[Exception]
) -> None:
    lesson = BY_NAME[name]
    traces = [other.get(trace, trace) for trace in lesson.traces]
    runs = dict(zip(lesson.traces, map(run_of, traces), strict=True))
    refuted(lesson, runs, expected)


def test_answers_follow_the_trace_and_not_the_lesson() -> None:
    """The same lesson on a run in other blocks asks the same and answers otherwise."""
    lesson = BY_NAME["three-wastes"]
    fine = lesson.read(
        {"naive-reservation": run_of("naive-reservation"), "block-16": run_of("block-4")}
    )
    told, other = (step_of(lesson, 3, facts) for facts in (facts_of(lesson.name), fine))
    assert told.question.answer > 2 * other.question.answer
    assert told.because != other.because
    assert told.ask == other.ask


def step_of(lesson: Lesson, number: int, facts: object) -> Step:
    return lesson.steps[number - 1](facts)


def test_lessons_are_told_without_streamlit() -> None:
    code = "import sys, dashboard.lessons; sys.exit('streamlit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- runs and commands -----------------------------------------------------------------------------


def test_a_run_folds_to_the_state_that_the_trace_ends_with(small_trace: Path) -> None:
    run = Run.read(small_trace)
    assert run.state_at(run.steps[-1].seq).keyframe() == folded(small_trace).keyframe()
    assert run.state_at(80).keyframe() == folded(small_trace, 80).keyframe()
    with pytest.raises(FoldError, match="no record 100000"):
        run.state_at(100_000)


def test_what_is_no_whole_trace_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl.zst"
    empty.write_bytes(b"")
    with pytest.raises(TraceError):
        Run.read(empty)


def test_the_commands_to_run_are_commands_of_this_project() -> None:
    """Their words, options and values are parsed, and nothing is run."""
    for lesson in LESSONS:
        words = shlex.split(lesson.change.command)[1:]
        command = typer.main.get_command(app)
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        command.make_context("glasspool", words).close()
