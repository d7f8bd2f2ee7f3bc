"""The page "Compare": curves on one axis, differences that are made once, and the page."""

import os
from pathlib import Path

import numpy as np
import pytest

from dashboard.comparison import MAX_KEPT, Compared, Comparisons, compared, curves, place_of
from dashboard.history import ROW
from dashboard.timeline_rows import Axis
from dashboard.views.compare import KEY_B, PATH_KEY
from engine.events import TraceError, measure_trace
from tests.dashboard.apps import page_app, texts
from tests.dashboard.simulated import SimulatedEngine, write_trace


@pytest.fixture(scope="module")
def other_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small trace's engine on a bigger pool."""
    path = tmp_path_factory.mktemp("other") / "other.jsonl.zst"
    return write_trace(path, SimulatedEngine(64, seed=3, max_running=8), 150)


def test_curves_count_both_axes_from_the_first_record() -> None:
    rows = np.zeros(3, ROW)
    rows["seq"], rows["step"], rows["time"] = [7, 8, 9], [70, 71, 72], [500.0, 501.0, 503.0]
    rows["used"], rows["shared"], rows["waiting"], rows["preempted"] = 3, 1, 2, 1
    by_step = curves(rows, Axis.STEP, 16, "A")
    assert list(by_step["x"]) == [0, 1, 2]
    assert list(by_step["utilisation"]) == [25.0] * 3
    assert list(by_step["queued"]) == [3] * 3
    assert list(curves(rows, Axis.TIME, 16, "A")["x"]) == [0, 1, 3]
    assert place_of(rows, 9, Axis.STEP) == 2
    assert place_of(rows, 9, Axis.TIME) == 3
    assert place_of(rows, 10, Axis.STEP) is None
    assert curves(rows[:0], Axis.STEP, 16, "A").empty


def test_a_difference_is_read_once_and_anew_when_a_file_changes(
    small_trace: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.jsonl.zst"
    copy.write_bytes(small_trace.read_bytes())
    made = Comparisons()
    told: list[tuple[int, int]] = []
    first = made.of(small_trace, copy, lambda done, total: told.append((done, total)))
    assert first.same
    assert told
    assert told[-1][0] == told[-1][1]
    assert made.known(small_trace, copy) is first
    told.clear()
    assert made.of(small_trace, copy, lambda done, total: told.append((done, total))) is first
    assert not told
    os.utime(copy, ns=(1, 1))
    assert made.known(small_trace, copy) is None


def test_differences_that_are_kept_are_bounded(small_trace: Path, tmp_path: Path) -> None:
    made = Comparisons()
    short = write_trace(tmp_path / "short.jsonl.zst", SimulatedEngine(16, seed=1), 2)
    copies = []
    for number in range(MAX_KEPT + 2):
        copies.append(tmp_path / f"{number}.jsonl.zst")
        copies[-1].write_bytes(short.read_bytes())
        made.of(short, copies[-1], lambda done, total: None)
    assert made.known(short, copies[0]) is None
    assert made.known(short, copies[-1]) is not None


def test_figures_are_compared_with_units_and_what_is_unknown_stays_so(
    small_trace: Path, other_trace: Path
) -> None:
    a, b = measure_trace(small_trace), measure_trace(other_trace)
    rows = {row.name: row for row in compared(a, b)}
    steps = rows["Steps"]
    assert (steps.a, steps.b, steps.difference, steps.unit) == (200, 150, -50, "steps")
    assert steps.change == "-25.0 %"
    assert rows["Utilisation, mean"].a == pytest.approx(100 * a.utilisation.mean_by_time)
    assert rows["Step, median"].a == pytest.approx(1000 * a.step_seconds.p50)
    assert rows["Prefix hit rate"].a is None, "the simulated engine looks nothing up"
    assert rows["Prefix hit rate"].difference is None
    assert rows["Prefix hit rate"].change == "unknown"
    assert Compared("Preemptions", "", 0, 3, "").change == "–", "there is no share of nothing"
    assert all(row.help and row.unit for row in rows.values())


def test_the_page_tells_where_two_traces_part_and_how_figures_differ(
    watched: Path, other_trace: Path
) -> None:
    app = page_app("compare")
    app.text_input(key=PATH_KEY).set_value(str(other_trace)).run(timeout=60)
    assert not app.exception
    assert app.session_state[KEY_B] == other_trace.name
    said = texts(app)
    assert "**Where they part**" in said
    assert "Step **" in said
    table = app.dataframe[0].value
    steps = table[table["figure"] == "Steps"].iloc[0]
    assert (steps["A"], steps["B"], steps["B - A"]) == (200, 150, -50)
    assert any("64" in str(row) for row in app.dataframe[1].value["B"]), "the pool's size differs"


def test_a_copy_of_a_trace_does_not_differ(watched: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl.zst"
    copy.write_bytes(watched.read_bytes())
    app = page_app("compare")
    app.text_input(key=PATH_KEY).set_value(str(copy)).run(timeout=60)
    assert "Nothing that is compared differs" in texts(app)


def test_a_damaged_trace_is_an_error_on_the_page(watched: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsonl.zst"
    damaged.write_bytes(b"this is no trace")
    with pytest.raises(TraceError):
        measure_trace(damaged)
    app = page_app("compare")
    app.text_input(key=PATH_KEY).set_value(str(damaged)).run(timeout=60)
    assert not app.exception
    assert app.error
    assert "damaged" in app.error[-1].value


def test_one_run_twice_says_what_to_do(watched: Path) -> None:
    app = page_app("compare")
    app.selectbox(key=KEY_B).select(watched.name).run(timeout=60)
    assert "glasspool serve --record" in texts(app)
    app.text_input(key=PATH_KEY).set_value("/etc/passwd").run(timeout=60)
    assert "give the path of a" in texts(app)
