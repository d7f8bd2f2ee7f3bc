"""The page "Preemptions": its log against hand-made records, a fold of its own, and the page."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from dashboard.charts_preemptions import fates
from dashboard.preemption_log import Outcome, Preemption, PreemptionLog
from dashboard.preemption_totals import by_request, total
from engine.events.records import (
    Computed,
    FinishReason,
    LookupStop,
    Preempt,
    PreemptWhy,
    PrefixLookup,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Step,
)
from tests.dashboard.apps import page_app, session_of, texts
from tests.dashboard.folding import fed, steps_of
from tests.dashboard.simulated import SimulatedEngine
from tests.dashboard.tiny import added, empty_state, step

WHY = PreemptWhy.NO_FREE_BLOCK


def lost(sequence: int, needy: int, blocks: int = 3, tokens: int = 40) -> Preempt:
    return Preempt(sequence, WHY, needy, blocks, tokens)


def resumed(sequence: int, hit: int) -> tuple[SequenceScheduled, PrefixLookup]:
    return (
        SequenceScheduled(sequence, ScheduledKind.RESUMED),
        PrefixLookup(sequence, 41, hit, LookupStop.MISS, True),
    )


def logged(*steps: Step) -> PreemptionLog:
    log = PreemptionLog()
    log.load(empty_state(), unbroken=False)
    for record in steps:
        log.note(record)
    return log


ARRIVALS = step(0, 100.0, added("victim", 1), added("needy", 2))


def test_a_story_tells_victim_needy_losses_and_what_it_cost() -> None:
    log = logged(
        ARRIVALS,
        step(1, 101.0, lost(1, 2)),
        step(2, 104.0, *resumed(1, 16), Computed(1, 10, 10), seconds=2.0, tokens=20),
        step(3, 107.0, Computed(1, 15, 14), seconds=3.0, tokens=28),
    )
    story = log.stories()[0]
    assert (story.seq, story.step, story.request, story.needy) == (1, 101, "victim", "needy")
    assert (story.blocks_released, story.tokens_lost) == (3, 40)
    assert (story.resumed_seq, story.resumed_step, story.found, story.recomputed) == (
        2,
        102,
        16,
        24,
    )
    assert story.away_seconds == 3.0
    assert story.delay_seconds == 9.0, "to the end of the step that computed the last lost token"
    assert story.work_seconds == 2.0 * 10 / 20 + 3.0 * 14 / 28
    assert story.outcome is Outcome.CAUGHT_UP


def test_a_story_at_an_earlier_moment_knows_nothing_later() -> None:
    log = logged(
        ARRIVALS,
        step(1, 101.0, lost(1, 2)),
        step(2, 104.0, *resumed(1, 16), Computed(1, 10, 10), tokens=10),
        step(3, 107.0, Computed(1, 15, 14), tokens=15),
    )
    assert log.stories(0) == []
    waiting = log.stories(1)[0]
    assert (waiting.outcome, waiting.found, waiting.recomputed) == (Outcome.WAITING, None, 0)
    assert (waiting.away_seconds, waiting.delay_seconds, waiting.resumed_step) == (None, None, None)
    half = log.stories(2)[0]
    assert (half.outcome, half.recomputed, half.delay_seconds) == (Outcome.RESUMED, 10, None)
    assert log.stories(3)[0] == log.stories()[0]


def test_a_hit_that_covers_everything_costs_nothing_but_the_wait() -> None:
    log = logged(ARRIVALS, step(1, 101.0, lost(1, 2)), step(2, 104.0, *resumed(1, 40)))
    story = log.stories()[0]
    assert (story.outcome, story.recomputed, story.work_seconds) == (Outcome.CAUGHT_UP, 0, 0.0)
    assert story.delay_seconds == story.away_seconds == 3.0


def test_the_first_lookup_of_a_request_is_not_taken_for_a_return() -> None:
    log = logged(
        step(
            0,
            100.0,
            added("victim", 1),
            added("needy", 2),
            PrefixLookup(1, 4, 3, LookupStop.MISS),
        ),
        step(1, 101.0, lost(1, 2)),
    )
    assert log.stories()[0].found is None


def test_who_is_preempted_again_before_it_is_back_has_two_stories() -> None:
    log = logged(
        ARRIVALS,
        step(1, 101.0, lost(1, 2)),
        step(2, 102.0, *resumed(1, 0), Computed(1, 5, 5), tokens=5),
        step(3, 103.0, lost(1, 1, blocks=1, tokens=5)),
        step(4, 104.0, *resumed(1, 0), Computed(1, 40, 40), tokens=40),
    )
    newest, first = log.stories()
    assert (first.outcome, first.recomputed) == (Outcome.PREEMPTED_AGAIN, 5)
    assert (newest.outcome, newest.recomputed) == (Outcome.CAUGHT_UP, 40)
    assert newest.needy_sequence == newest.sequence
    assert log.stories(2)[0].outcome is Outcome.RESUMED


def test_who_ends_before_it_is_back_has_ended() -> None:
    log = logged(
        ARRIVALS,
        step(1, 101.0, lost(1, 2)),
        step(2, 102.0, SequenceFinished(1, FinishReason.ABORT, 0)),
    )
    log.load(empty_state(), unbroken=False)
    assert log.stories()[0].outcome is Outcome.ENDED, (
        "records that are missing later change nothing"
    )
    assert log.stories(1)[0].outcome is Outcome.WAITING


def test_after_missing_records_a_story_is_not_guessed_on() -> None:
    log = logged(ARRIVALS, step(1, 101.0, lost(1, 2)))
    state = empty_state()
    state.apply(step(0, 100.0, added("victim", 1), added("needy", 2)))
    state.seq = 9
    log.load(state, unbroken=False)
    log.note(step(10, 110.0, *resumed(1, 0), Computed(1, 40, 40)))
    story = log.stories()[0]
    assert (story.outcome, story.recomputed, story.resumed_step) == (Outcome.UNSEEN, 0, None)


def test_totals_add_up_by_victim_and_by_who_needed_the_room() -> None:
    log = logged(
        ARRIVALS,
        step(1, 101.0, lost(1, 2)),
        step(2, 102.0, *resumed(1, 16), Computed(1, 24, 24), tokens=24),
        step(3, 103.0, lost(1, 1, blocks=2, tokens=30)),
        step(4, 104.0, lost(2, 1, blocks=1, tokens=9)),
    )
    stories = log.stories()
    cost = total(stories)
    assert (cost.count, cost.blocks, cost.lost) == (3, 6, 79)
    assert (cost.found, cost.recomputed, cost.open) == (16, 24, 2)
    assert cost.delay_seconds == pytest.approx(1.5)
    assert [(n, c.count, c.lost) for n, c in by_request(stories, False)] == [
        ("victim", 2, 70),
        ("needy", 1, 9),
    ]
    assert [(n, c.count, c.lost) for n, c in by_request(stories, True)] == [
        ("needy", 1, 40),
        ("victim", 2, 39),
    ]


def test_the_chart_splits_what_was_lost_by_its_fate() -> None:
    log = logged(
        ARRIVALS,
        step(1, 101.0, lost(1, 2), lost(2, 2, tokens=7)),
        step(2, 102.0, *resumed(1, 16), Computed(1, 20, 20), tokens=20),
    )
    frame = fates(log.stories())
    assert dict(zip(frame["fate"], frame["tokens"], strict=True)) == {
        "still cached": 16,
        "recomputed": 20,
        "not back yet": 11,
    }
    assert set(frame["step"]) == {101}
    assert set(frame["count"]) == {2}


# -- against a fold of its own, and on the page --------------------------------------------------


@dataclass
class Told:
    """What a reader with a pencil notes of one preemption."""

    step: int
    request: str
    needy: str
    blocks: int
    lost: int
    resumed: int | None = None
    recomputed: int = 0


def by_hand(steps: list[Step]) -> list[Told]:
    """Every preemption of a trace, from its events alone."""
    request_of: dict[int, str] = {}
    last: dict[int, Told] = {}
    found: list[Told] = []
    for record in steps:
        for event in record.events:
            name = type(event).__name__
            if name == "RequestAdded":
                request_of[event.sequence] = event.request
            elif name == "Fork":
                request_of[event.child] = request_of[event.parent]
            elif name == "Preempt":
                last[event.sequence] = Told(
                    record.step,
                    request_of[event.sequence],
                    request_of[event.victim_of],
                    event.blocks_released,
                    event.tokens_lost,
                )
                found.append(last[event.sequence])
            elif name == "SequenceScheduled" and event.kind is ScheduledKind.RESUMED:
                last[event.sequence].resumed = record.step
            elif name == "Computed" and event.recomputed:
                last[event.sequence].recomputed += event.recomputed
    return found


def as_told(story: Preemption) -> Told:
    return Told(
        *(story.step, story.request, story.needy, story.blocks_released, story.tokens_lost),
        *(story.resumed_step, story.recomputed),
    )


@pytest.mark.parametrize("upto", [60, 120, 199])
def test_the_log_equals_a_fold_by_hand_at_any_moment(small_trace: Path, upto: int) -> None:
    feed = fed(SimulatedEngine(48, seed=3, max_running=8), 200)
    expected = by_hand(steps_of(small_trace)[: upto + 1])
    assert expected
    assert [as_told(story) for story in reversed(feed.preemptions(upto))] == expected


def test_the_page_shows_the_stories_of_its_moment(watched: Path) -> None:
    app = page_app("preemptions", seq="120")
    expected = by_hand(steps_of(watched)[:121])
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics["Preemptions"] == str(len(expected))
    assert metrics["Tokens lost"] == f"{sum(told.lost for told in expected):,}"
    table = app.dataframe[0].value
    assert list(table["step"]) == [told.step for told in reversed(expected)]
    assert list(table["tokens lost"]) == [told.lost for told in reversed(expected)]
    assert f"**Step {expected[-1].step:,}**" in texts(app), "the newest one is told"


def test_a_story_leads_to_its_step_and_its_requests(watched: Path) -> None:
    app = page_app("preemptions", seq="120")
    newest = by_hand(steps_of(watched)[:121])[-1]
    app.button(key="preemption-victim").click().run(timeout=30)
    assert session_of(app).selection.request == newest.request
    app.button(key="preemption-go").click().run(timeout=30)
    assert session_of(app).look().step == newest.step


def test_without_a_preemption_the_page_says_that_there_was_room(watched: Path) -> None:
    assert "the pool had room for everybody" in texts(page_app("preemptions", seq="0"))
