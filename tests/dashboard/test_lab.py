"""The page "Lab" says what the library says, for every input, and needs no source."""

import os
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard import lab_results
from dashboard.lab_choices import FILE, FIRST, FIXED
from dashboard.source import SOURCE_VARIABLE
from engine.lab import Kind, LabSettings, lab_requests, read_lengths, run_all, static_usage
from tests.dashboard.apps import page_app, texts

TABLES = ("static", "moment", "fates", "refusals")
"""In the order of the page."""


@pytest.fixture(autouse=True)
def without_source(monkeypatch):
    st.cache_resource.clear()
    monkeypatch.delenv(SOURCE_VARIABLE, raising=False)
    yield
    st.cache_resource.clear()


@pytest.fixture
def app(monkeypatch) -> AppTest:
    """The page on 60 of the sample's lengths."""
    monkeypatch.setitem(FIRST, "lab-count", 60)
    return page_app("lab")


def by_key(elements, key: str):
    return next(element for element in elements if element.key == key)


def change(app: AppTest, kind: str, key: str, value) -> AppTest:
    by_key(getattr(app, kind), key).set_value(value)
    app.run(timeout=60)
    assert not app.exception, app.exception[0].stack_trace
    return app


def table(app: AppTest, name: str):
    return app.dataframe[TABLES.index(name)].value.set_index("allocator")


def test_the_tables_are_the_librarys_results(app):
    sample, settings = read_lengths("sample", 60), LabSettings()
    shown = table(app, "static")
    for usage in static_usage(sample.totals, settings):
        row = shown.loc[usage.kind.value]
        assert row["slots taken"] == usage.taken
        assert row["table entries"] == usage.table_entries
        assert row["utilisation (%)"] == pytest.approx(100 * usage.utilisation)
    runs = run_all(lab_requests(sample.lengths, 10, 0), 16_384, settings)
    fates = table(app, "fates")
    refusals = table(app, "refusals")
    middle = table(app, "moment")
    for run in runs:
        assert fates.loc[run.kind.value, "waited"] == run.waited
        assert fates.loc[run.kind.value, "done at step"] == run.steps
        found = [run.refused, run.refused_with_free, run.refused_with_empty, run.never_fit]
        assert refusals.loc[run.kind.value].tolist() == found
        moment = run.moments[len(run.moments) // 2]
        assert middle.loc[run.kind.value, "stored"] == moment.account.stored
        assert sum(middle.loc[run.kind.value].iloc[:5]) == 16_384


def test_every_input_changes_what_it_is_about(app):
    before = table(app, "static")["slots taken"]
    change(app, "selectbox", "lab-max-model-len", 8192)
    longer = table(app, "static")["slots taken"]
    assert longer["naive"] == 2 * before["naive"]
    assert longer.drop("naive").equals(before.drop("naive"))
    change(app, "selectbox", "lab-block-size", 128)
    coarse = table(app, "static")["slots taken"]
    assert coarse["paged"] > longer["paged"]
    change(app, "selectbox", "lab-model", "Qwen2.5-0.5B")
    assert table(app, "static").loc["mapped", "slots taken"] == 60 * 8192
    waited = table(app, "fates").loc["exact", "waited"]
    change(app, "selectbox", "lab-memory", 4096)
    assert table(app, "fates").loc["exact", "waited"] > waited


def test_another_moment_is_another_picture(app):
    first = table(app, "moment")
    (slider,) = app.select_slider
    change(app, "select_slider", slider.key, int(slider.options[-1].replace(",", "")))
    assert not table(app, "moment").equals(first)


def test_where_nothing_fits_or_waits_the_sentences_say_so(app):
    change(app, "selectbox", "lab-kind", FIXED)
    change(app, "selectbox", "lab-memory", 4096)
    change(app, "selectbox", "lab-max-model-len", 8192)
    said = texts(app)
    assert "naive can place none" in said
    assert "% with naive" not in said, "no share of nothing"
    assert "% with exact" in said
    assert "no request of exact had to wait for a long enough hole" in said
    assert "60 sequences, **30,000 tokens**, the longest 500." in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is neither a file nor a way to draw lengths"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59,x,4\n", "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59,9000,4\n", "raise it"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(app, tmp_path: Path, content, words):
    path = tmp_path / "trace.csv"
    if content:
        path.write_text(content)
    change(app, "selectbox", "lab-kind", FILE)
    assert "Name a file of lengths above" in texts(app)
    change(app, "text_input", "lab-path", str(path))
    (error,) = app.error
    assert words in error.value.replace("\\", "")


def test_a_file_is_read_again_once_it_changed(app, tmp_path: Path):
    path = tmp_path / "trace.csv"
    line = "2023-11-16 23:59:59,{},11\n"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + line.format(90))
    change(app, "selectbox", "lab-kind", FILE)
    change(app, "text_input", "lab-path", str(path))
    assert "1 sequence, **100 tokens**" in texts(app)
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + line.format(990))
    os.utime(path, (1, 1))
    app.run(timeout=60)
    assert "1 sequence, **1,000 tokens**" in texts(app)


def test_more_tokens_than_the_page_stores_are_told(app, monkeypatch):
    monkeypatch.setattr(lab_results, "MOST_TOKENS", 5_000)
    change(app, "selectbox", "lab-kind", FIXED)
    assert "10 sequences, **5,000 tokens**, the longest 500 (of 60, the first" in texts(app)


def test_without_a_measurement_the_page_says_so(monkeypatch, tmp_path: Path):
    monkeypatch.setitem(FIRST, "lab-count", 60)
    assert "A GPU's ratios differ" in texts(page_app("lab"))
    st.cache_resource.clear()
    monkeypatch.setattr(lab_results, "ATTENTION", tmp_path / "none.json")
    assert "The time of attention is not measured here" in texts(page_app("lab"))


def test_every_allocator_has_its_sentence(app):
    for kind in Kind:
        assert f"**{kind}**" in texts(app)
