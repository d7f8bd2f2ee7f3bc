"""The page "Timeline": what buckets keep of the rows, and the page."""

from pathlib import Path

import numpy as np
import pytest

from dashboard.charts_timeline import timeline_spec
from dashboard.history import ROW
from dashboard.timeline_rows import Axis, bucketed, within
from dashboard.views.timeline import AXIS_KEY, LATER_KEY
from tests.dashboard.apps import page_app, session_of, texts
from tests.dashboard.folding import fed
from tests.dashboard.simulated import SimulatedEngine


def rows_of(*facts: dict) -> np.ndarray:
    rows = np.zeros(len(facts), ROW)
    for at, fact in enumerate(facts):
        rows[at]["seq"] = at
        rows[at]["step"] = at
        rows[at]["time"] = 100.0 + at
        for name, value in fact.items():
            rows[at][name] = value
    return rows


def test_few_rows_are_their_own_buckets() -> None:
    frame = bucketed(rows_of({"used": 3}, {"used": 5}), Axis.STEP, 0.0, 10)
    assert list(frame["x"]) == [0, 1]
    assert list(frame["x2"]) == [1, 2]
    assert list(frame["active"]) == [3, 5]
    assert list(frame["records"]) == [1, 1]


def test_a_bucket_keeps_mean_least_and_most_of_levels_and_the_sum_of_events() -> None:
    facts = [{"used": used, "shared": 1, "preemptions": 1} for used in (1, 9, 2, 4)]
    frame = bucketed(rows_of(*facts), Axis.STEP, 0.0, 1)
    assert len(frame) <= 2
    whole = bucketed(rows_of(*facts), Axis.STEP, 0.0, 2)
    first = whole.iloc[0]
    assert (first["active_min"], first["active_max"], first["active"]) == (2, 10, 6)
    assert whole["preemptions"].sum() == 4
    assert whole["records"].sum() == 4


def test_the_most_of_two_levels_together_is_not_the_sum_of_their_mosts() -> None:
    frame = bucketed(
        rows_of({"waiting": 3, "preempted": 1}, {"preempted": 5}, {}, {}), Axis.STEP, 0.0, 1
    )
    assert frame.iloc[0]["queued_max"] == 5
    assert frame.iloc[0]["waiting_max"] + frame.iloc[0]["preempted_max"] == 8


def test_no_bucket_spans_missing_records() -> None:
    rows = rows_of({}, {}, {"segment": 1, "time": 150.0}, {"segment": 1, "time": 151.0})
    assert bucketed(rows, Axis.STEP, 0.0, 1).iloc[0]["records"] == 2
    frame = bucketed(rows, Axis.TIME, 100.0, 2)
    ends = dict(zip(frame["segment"], frame["x2"], strict=False))
    assert set(frame["segment"]) == {0, 1}
    assert ends[0] <= 1.0, "the stretch without records stays blank"


def test_on_the_time_axis_a_level_lasts_until_the_next_record() -> None:
    rows = rows_of({"time": 100.0}, {"time": 107.0, "model": 0.5})
    frame = bucketed(rows, Axis.TIME, 90.0, 10)
    assert list(frame["x"]) == [10.0, 17.0]
    assert list(frame["x2"]) == [17.0, 17.5]


def test_records_of_one_step_are_put_together() -> None:
    rows = rows_of({"step": 4, "arrivals": 1}, {"step": 4, "arrivals": 2}, {"step": 5})
    frame = bucketed(rows, Axis.STEP, 0.0, 10)
    assert list(frame["arrivals"]) == [3, 0]
    assert list(frame["seq"]) == [1, 2]


def test_durations_are_means_over_the_steps_that_ran_the_model() -> None:
    rows = rows_of(
        {"step": 1, "decode": 1, "model": 0.010, "sample": 0.002},
        {"step": 1, "model": 0.500},
        {"step": 2, "decode": 1, "model": 0.030},
        {"step": 3, "decode": 1, "model": 0.090},
    )
    frame = bucketed(rows, Axis.STEP, 0.0, 1)
    first = frame.iloc[0]
    assert first["steps"] == 2
    assert first["model_ms"] == pytest.approx(20.0)
    assert first["step_ms_max"] == pytest.approx(30.0)


def test_a_range_takes_the_row_before_it_along() -> None:
    rows = rows_of(*({} for _ in range(10)))
    assert list(within(rows, Axis.STEP, 0.0, 4.5, 6.0)["seq"]) == [4, 5, 6]
    assert list(within(rows, Axis.TIME, 100.0, 0.0, 1.0)["seq"]) == [0, 1]


def test_any_number_of_rows_becomes_few_buckets_that_add_up() -> None:
    feed = fed(SimulatedEngine(48, seed=3, max_running=8), 200)
    rows = feed.history.rows()
    for axis in Axis:
        for most in (1, 7, 50, 500):
            frame = bucketed(rows, axis, 100.0, most)
            assert len(frame) <= most + 1
            assert frame["records"].sum() == len(rows)
            assert frame["allocations"].sum() == rows["allocations"].sum()
            assert (frame["x2"] > frame["x"]).all()
            assert (frame["x"].diff().dropna() > 0).all()
            assert frame["active_max"].max() == (rows["used"] + rows["shared"]).max()


def test_what_a_source_does_not_know_has_no_chart() -> None:
    spec = timeline_spec(Axis.STEP, 48, ("queues", "events"), "#000000")
    assert len(spec["vconcat"]) == 3
    picked = next(param for param in spec["params"] if param["name"] == "picked")
    assert len(picked["views"]) == 2


def test_the_page_shows_the_past_of_its_moment(watched: Path) -> None:
    app = page_app("timeline", seq="120")
    said = texts(app)
    assert "as known at step 121" in said
    assert "what came later is not shown" in said
    assert session_of(app).look().seq == 120


def test_the_axis_and_what_came_later_can_be_chosen(watched: Path) -> None:
    app = page_app("timeline", seq="120")
    app.session_state[AXIS_KEY] = "by time"
    app.session_state[LATER_KEY] = True
    app.run(timeout=30)
    assert not app.exception
    assert "right of the dashed line" in texts(app)


def test_before_the_first_step_the_page_says_what_to_do(watched: Path) -> None:
    assert "Send the engine a request" in texts(page_app("timeline", seq="-1"))
