"""The page's script in Streamlit's own test runner: sources, links, tables and empty states."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.feed import Phase
from dashboard.feeds import close_feeds, feed_of
from dashboard.session import Session
from dashboard.sessions import SOURCE_KEY, TOKEN_KEY, catalog, sessions
from dashboard.shell import PATH_KEY
from dashboard.source import SOURCE_VARIABLE, parse_source
from tests.dashboard.apps import page_app, texts
from tests.dashboard.folding import folded
from tests.dashboard.simulated import SimulatedEngine, write_trace
from tests.dashboard.waiting import wait_for

SCRIPT = Path(dashboard.__file__).with_name("app.py")


@pytest.fixture(autouse=True)
def nothing_outlives_a_test() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    close_feeds()
    st.cache_resource.clear()


@pytest.fixture
def trace(small_trace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small trace as the dashboard's source, read to its end."""
    monkeypatch.setenv(SOURCE_VARIABLE, str(small_trace))
    feed = feed_of(parse_source(str(small_trace)))
    wait_for(lambda: feed.status.phase is Phase.RECORDED, what="the end of the reading")
    return small_trace


def session_of(app: AppTest) -> Session:
    return sessions().get(app.session_state[TOKEN_KEY])


def test_the_table_lists_who_holds_the_pool_at_the_moment_of_the_link(trace: Path) -> None:
    app = AppTest.from_file(str(SCRIPT))
    app.query_params["seq"] = "80"
    app.run(timeout=30)
    assert not app.exception
    state = folded(trace, 80)
    table = app.dataframe[0].value
    assert set(table["request"]) == set(state.requests)
    for row in table.itertuples(index=False):
        blocks = {
            block
            for sequence in state.sequences.values()
            if sequence.request == row.request
            for block in sequence.table
        }
        assert row[2] == len(blocks)
    assert table["blocks held"].is_monotonic_decreasing
    assert any(f"step {state.step}" in element.value for element in app.markdown)


def test_a_share_link_restores_record_request_and_block(trace: Path) -> None:
    app = AppTest.from_file(str(SCRIPT))
    app.query_params.update({"seq": "33", "request": "req-2", "block": "11", "source": trace.name})
    app.run(timeout=30)
    session = session_of(app)
    look = session.look()
    assert (look.seq, look.live, look.playing) == (33, False, False)
    assert (session.selection.request, session.selection.block) == ("req-2", 11)


def test_a_link_to_a_source_that_is_not_here_says_so(trace: Path) -> None:
    app = AppTest.from_file(str(SCRIPT))
    app.query_params["source"] = "/etc/passwd"
    app.run(timeout=30)
    assert not app.exception
    assert "not among the sources" in app.error[0].value


def test_each_browser_session_has_a_moment_of_its_own(trace: Path) -> None:
    seqs = ("10", "90", "150")
    apps = []
    for seq in seqs:
        app = AppTest.from_file(str(SCRIPT))
        app.query_params["seq"] = seq
        apps.append(app.run(timeout=30))
    assert [session_of(app).look().seq for app in apps] == [int(seq) for seq in seqs]
    assert len({app.session_state[TOKEN_KEY] for app in apps}) == 3
    assert len({id(session_of(app).feed) for app in apps}) == 1


def test_a_rerun_keeps_the_session_and_its_selection(trace: Path) -> None:
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    session_of(app).go(70)
    session_of(app).select(block=3)
    token = app.session_state[TOKEN_KEY]
    app.run(timeout=30)
    assert app.session_state[TOKEN_KEY] == token
    assert session_of(app).look().seq == 70
    assert session_of(app).selection.block == 3


def test_several_sources_are_chosen_from_by_name(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_trace(tmp_path / "other.jsonl.zst", SimulatedEngine(20, seed=1), 10)
    monkeypatch.setenv(SOURCE_VARIABLE, f"{trace}\n{other}\nhttp://127.0.0.1:9")
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    options = app.selectbox[0].options
    assert options[:3] == [trace.name, "other.jsonl.zst", "127.0.0.1:9"]
    assert any("smollm2" in name for name in options), "the demo data can be chosen too"
    app.selectbox[0].select("other.jsonl.zst").run(timeout=30)
    assert not app.exception
    feed = session_of(app).feed
    assert feed.source_name == "other.jsonl.zst"
    wait_for(lambda: feed.header is not None, what="the header")
    assert feed.header.num_blocks == 20


def test_a_trace_is_opened_by_its_path_and_anything_else_is_refused(
    trace: Path, tmp_path: Path
) -> None:
    other = write_trace(tmp_path / "typed.jsonl.zst", SimulatedEngine(20, seed=1), 10)
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    app.text_input(key=PATH_KEY).set_value("/etc/passwd").run(timeout=30)
    assert "give the path of a" in app.error[0].value
    app.text_input(key=PATH_KEY).set_value(str(other)).run(timeout=30)
    assert not app.exception
    assert app.session_state[SOURCE_KEY] == "typed.jsonl.zst"
    assert session_of(app).feed.source_name == "typed.jsonl.zst"


def test_two_files_of_one_name_are_two_sources(trace: Path, tmp_path: Path) -> None:
    other = write_trace(tmp_path / trace.name, SimulatedEngine(20, seed=1), 10)
    name = catalog().add_trace(str(other))
    assert name == f"{trace.name} (2)"
    assert catalog().add_trace(str(other)) == name


@pytest.mark.parametrize(
    "path", ["pool", "requests", "timeline", "preemptions", "compare", "capacity"]
)
def test_every_page_about_a_simulated_run_says_so(
    path: str, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimulatedEngine(20, seed=1)
    engine.header = msgspec.structs.replace(engine.header, simulated=True)
    other = write_trace(tmp_path / "virtual.jsonl.zst", engine, 10)
    monkeypatch.setenv(SOURCE_VARIABLE, f"{trace}\n{other}")
    feed = feed_of(parse_source(str(other)))
    wait_for(lambda: feed.status.phase is Phase.RECORDED, what="the end of the reading")
    real, virtual = (texts(page_app(path, source=name)) for name in (trace.name, other.name))
    # Compare shows the second source as run B, whatever is watched.
    badge = "simulated]"
    assert real.count(badge) == (1 if path == "compare" else 0)
    assert virtual.count(badge) == (2 if path == "compare" else 1)


def test_names_from_records_are_shown_letter_for_letter(trace: Path) -> None:
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    assert not app.exception
    assert any(r"tiny\-\*random\*\-llama" in element.value for element in app.markdown)


def test_without_any_source_the_page_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SOURCE_VARIABLE, raising=False)
    monkeypatch.setattr("dashboard.sessions.DEMO_DATA", tmp_path)
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    assert not app.exception
    text = " ".join(element.value for element in app.markdown)
    for remedy in ("glasspool dashboard --engine", "--trace", "glasspool demo"):
        assert remedy in text
    app.text_input(key=PATH_KEY).set_value("nowhere.jsonl.zst").run(timeout=30)
    assert "no trace file" in app.error[0].value


def test_a_source_that_cannot_be_is_an_error_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOURCE_VARIABLE, "no-such-file.jsonl.zst")
    app = AppTest.from_file(str(SCRIPT)).run(timeout=30)
    assert not app.exception
    assert "no trace file" in app.error[0].value
