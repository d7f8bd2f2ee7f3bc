"""The page's script in Streamlit's own test runner: figures, table and ticker equal the fold."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.feeds import close_feeds, feed_of
from dashboard.figures import cards, read_figures
from dashboard.source import SOURCE_VARIABLE, parse_source
from engine.events import PoolState, TraceReader
from tests.dashboard.waiting import wait_for

SCRIPT = Path(dashboard.__file__).with_name("app.py")


@pytest.fixture(autouse=True)
def no_feed_outlives_a_test() -> Iterator[None]:
    yield
    close_feeds()


def test_figures_equal_the_fold_of_the_trace(
    quick_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOURCE_VARIABLE, str(quick_trace))
    with TraceReader(quick_trace) as reader:
        state = PoolState(reader.header)
        for record in reader:
            state.apply(record)
    feed = feed_of(parse_source(str(quick_trace)))
    wait_for(lambda: "the end" in feed.status.text, what="the replay's end")
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    assert not app.exception
    shown = {metric.label: metric.value for metric in app.metric}
    expected = {card.label: card.value for card in cards(read_figures(state, None))}
    del shown["Speed"], expected["Speed"]  # of the feed's last seconds, not of the state
    assert shown == expected
    assert shown["Active blocks"] == str(state.active_blocks)
    table = app.dataframe[0].value
    assert set(state.requests) <= set(table["request"])
    ticker = " ".join(element.value for element in app.markdown)
    assert "preempted for sequence" in ticker
    assert "finished" in ticker
    assert any("48 blocks of 16 slots" in caption.value for caption in app.caption)


def test_names_from_records_are_shown_letter_for_letter(
    quick_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOURCE_VARIABLE, str(quick_trace))
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    feed = feed_of(parse_source(str(quick_trace)))
    wait_for(lambda: feed.header is not None, what="the header")
    app.run(timeout=30)
    assert not app.exception
    assert any(r"tiny\-\*random\*\-llama" in element.value for element in app.markdown)


def test_a_page_without_a_source_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOURCE_VARIABLE, raising=False)
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    assert not app.exception
    assert "--engine URL" in app.error[0].value


def test_a_file_that_is_no_trace_is_an_error_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a trace")
    monkeypatch.setenv(SOURCE_VARIABLE, str(path))
    feed = feed_of(parse_source(str(path)))
    wait_for(lambda: feed.status.phase == "failed", what="the refusal")
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    assert not app.exception
    assert "notes" in app.error[0].value
    assert not app.metric
