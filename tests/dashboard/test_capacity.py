"""The page "Capacity": with and without a source, every way of asking, and what cannot be."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.capacity_inputs import BY_NUMBERS, GPU
from dashboard.charts_capacity import ANY, CHOSEN, capacity_rows
from dashboard.feeds import close_feeds
from dashboard.source import SOURCE_VARIABLE
from dashboard.views.capacity import ABOVE
from engine.lab.capacity import GpuBudget, Sizing
from engine.lab.model_shapes import model_shape
from engine.lab.observation import observe, observe_trace
from engine.lab.reconciliation import own_sizing, reconcile
from tests.dashboard.apps import page_app, texts
from tests.dashboard.folding import folded, steps_of


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    """The page where nothing can be watched."""
    st.cache_resource.clear()
    monkeypatch.delenv(SOURCE_VARIABLE, raising=False)
    monkeypatch.setattr("dashboard.sessions.DEMO_DATA", tmp_path)
    yield page_app("capacity")
    close_feeds()
    st.cache_resource.clear()


def figures(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def shown(sizing: Sizing) -> dict[str, str]:
    """The page's figures of a sizing."""
    return {
        "Bytes per token": f"{sizing.bytes_per_token:,}",
        "Bytes per block": f"{sizing.bytes_per_block:,}",
        "Blocks": f"{sizing.num_blocks:,}",
        "Cacheable tokens": f"{sizing.tokens:,}",
    }


def run(app: AppTest) -> AppTest:
    app.run(timeout=30)
    assert not app.exception, app.exception[0].stack_trace
    return app


def test_without_a_source_the_arithmetic_is_there_and_what_is_lacking_is_said(alone):
    assert figures(alone) == shown(Sizing(12_288, 16, 12_400_000_000))
    table = alone.dataframe[0].value
    assert dict(zip(table["tokens"], table["sequences"], strict=True))[4096] == 246
    assert "Nothing is watched" in texts(alone)
    assert len(alone.dataframe) == 1


def test_every_input_reaches_the_figures(alone):
    alone.selectbox(key="capacity-model").set_value("Llama-3.1-8B")
    alone.selectbox(key="capacity-dtype").set_value("fp8")
    alone.selectbox(key="capacity-block-size").set_value(32)
    alone.text_input(key="capacity-memory").set_value("8GiB")
    alone.text_input(key="capacity-lengths").set_value("33")
    run(alone)
    sizing = Sizing(65_536, 32, 8 * 2**30)
    assert figures(alone) == shown(sizing)
    (row,) = alone.dataframe[0].value.to_dict("records")
    assert row == {
        "tokens": 33,
        "blocks of each": 2,
        "wasted slots": 31,
        "sequences": sizing.num_blocks // 2,
    }


def test_a_gpus_terms_are_shown_and_taken_off(alone):
    alone.radio(key="capacity-kind").set_value(GPU)
    run(alone)
    alone.text_input(key="capacity-gpu").set_value("10GiB")
    alone.number_input(key="capacity-utilization").set_value(0.5)
    alone.text_input(key="capacity-overhead").set_value("1GiB")
    run(alone)
    weights = model_shape("Qwen2.5-0.5B").weight_bytes
    budget = GpuBudget(10 * 2**30, 0.5, weights, 2**30)
    assert figures(alone) == shown(Sizing(12_288, 16, budget.kv_memory))
    assert "10.0 GiB × 0.5 − 942 MiB weights − 1.0 GiB overhead" in texts(alone)
    alone.text_input(key="capacity-weights").set_value("2GiB")
    run(alone)
    assert figures(alone) == shown(Sizing(12_288, 16, 2 * 2**30))


def test_a_shape_may_be_given_by_numbers(alone):
    alone.selectbox(key="capacity-model").set_value(BY_NUMBERS)
    run(alone)
    alone.number_input(key="capacity-kv-heads").set_value(1)
    run(alone)
    assert figures(alone)["Bytes per token"] == f"{2 * 24 * 64 * 2:,}"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("capacity-memory", "plenty", "plenty is no amount of memory"),
        ("capacity-memory", "1kB", "hold no block"),
        ("capacity-lengths", "4096, x", "no list of lengths"),
        ("capacity-lengths", "", "no list of lengths"),
    ],
)
def test_what_cannot_be_is_said_in_place_of_figures(alone, key, value, words):
    alone.text_input(key=key).set_value(value)
    run(alone)
    (error,) = alone.error
    assert words in error.value.replace("\\", "")
    assert not alone.metric


def test_weights_of_unknown_size_are_asked_for(alone):
    alone.selectbox(key="capacity-model").set_value(BY_NUMBERS)
    alone.radio(key="capacity-kind").set_value(GPU)
    run(alone)
    assert "size of the model's weights is not known" in alone.error[0].value.replace("\\", "")


def account(app: AppTest) -> tuple[dict[str, str], list[tuple[str, ...]]]:
    """The figures of the watched engine, and the table of causes below its head."""
    (table,) = (part.value for part in app.markdown if part.value.startswith("| cause"))
    lines = table.replace("\\", "").replace("*", "").splitlines()[2:]
    return figures(app), [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines]


def rows_of(found) -> list[tuple[str, ...]]:
    left = found.sized_for
    rows = [("sized for", "", f"{left:,}", f"sequences of {found.length:,} tokens")]
    for effect in found.effects:
        left -= effect.missing
        sign = "+" if effect.missing < 0 else "−"
        change = f"{sign}{abs(effect.missing):,}" if effect.missing else ""
        rows.append((effect.cause.value, change, f"{left:,}", effect.why))
    return [*rows, ("runs", "", f"{found.runs:,}", "")]


def test_the_watched_engine_is_accounted_for_at_its_moment(watched):
    app = page_app("capacity", seq="120")
    seen = observe(folded(watched, 120))
    assert seen.running
    found = reconcile(own_sizing(seen), 512, seen)
    said, table = account(app)
    assert (said["Sized for"], said["Runs"]) == (str(found.sized_for), str(found.runs))
    assert table == rows_of(found)
    assert table[-2][2] == table[-1][2] == str(found.runs)
    app.selectbox(key="capacity-assumed").set_value(1024)
    app.radio(key="capacity-base").set_value(ABOVE)
    run(app)
    above = Sizing(12_288, 16, 12_400_000_000)
    assert account(app)[1] == rows_of(reconcile(above, 1024, seen))


def test_the_fullest_moment_is_that_of_the_command_line(watched):
    app = page_app("capacity", seq="3")
    app.button(key="capacity-fullest").click()
    run(app)
    seen = observe_trace(watched)
    assert account(app)[1] == rows_of(reconcile(own_sizing(seen), 512, seen))
    assert f"step {seen.step}," in texts(app)


@pytest.mark.parametrize(("length", "wanting"), [("16", True), ("100000", False)])
def test_who_runs_fewer_while_nothing_waits_is_told_to_ask_for_more(watched, length, wanting):
    seq = next(
        step.seq for step in steps_of(watched) if step.queues.running and not step.queues.waiting
    )
    seen = observe(folded(watched, seq))
    assert seen.running
    assert not seen.waiting
    app = page_app("capacity", seq=str(seq))
    app.text_input(key="capacity-lengths").set_value(length)
    run(app)
    assert ("Nothing waits at this moment" in texts(app)) == wanting


def test_the_chart_leaves_out_lengths_that_do_not_fit():
    sizing = Sizing(1, 16, 1600)
    rows = capacity_rows(sizing, [16, 17, 1600, 1601])
    chosen = rows[rows["kind"] == CHOSEN]
    assert chosen["length"].tolist() == [16, 17, 1600]
    assert chosen["sequences"].tolist() == [100, 50, 1]
    curve = rows[rows["kind"] == ANY]
    assert (curve["length"].iloc[0], curve["length"].iloc[-1]) == (16, 1600)
    assert curve["length"].is_monotonic_increasing
    for row in curve.itertuples():
        assert row.sequences == sizing.row(row.length).sequences
