"""How the dashboard is started, and who may talk to it."""

from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from dashboard.launch import launch_command
from dashboard.pool_socket import NO_SESSION
from dashboard.source import (
    SOURCE_VARIABLE,
    EngineSource,
    SourceError,
    TraceSource,
    parse_source,
    source_text,
)
from tests.dashboard.browser import running_dashboard


def test_an_engine_address_leads_to_its_event_stream() -> None:
    assert parse_source("http://127.0.0.1:8000/") == EngineSource(
        "http://127.0.0.1:8000", "ws://127.0.0.1:8000/v1/events"
    )
    assert parse_source("https://example.org/a").events_url == "wss://example.org/a/v1/events"


def test_a_trace_is_named_by_its_absolute_path(
    small_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_trace.parent)
    source = parse_source(small_trace.name)
    assert source == TraceSource(small_trace.resolve())
    assert parse_source(source_text(source)) == source


@pytest.mark.parametrize("text", ["http://", "no-such-file.jsonl.zst", "."])
def test_a_source_that_cannot_be_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(SourceError, match="give a"):
        parse_source(text)


def test_the_command_carries_source_host_and_port(small_trace: Path) -> None:
    argv, environment = launch_command(str(small_trace), "127.0.0.1", 8765)
    assert environment[SOURCE_VARIABLE] == str(small_trace)
    assert argv[argv.index("--server.port") + 1] == "8765"
    assert argv[argv.index("--server.address") + 1] == "127.0.0.1"


def test_several_sources_are_carried_in_their_order(small_trace: Path) -> None:
    _, environment = launch_command(["http://127.0.0.1:8000/", str(small_trace)])
    assert environment[SOURCE_VARIABLE].split("\n") == ["http://127.0.0.1:8000", str(small_trace)]
    assert launch_command([])[1][SOURCE_VARIABLE] == ""


def test_the_pool_socket_answers_its_own_origin_and_known_sessions_only(
    small_trace: Path, tmp_path: Path
) -> None:
    with running_dashboard(str(small_trace), tmp_path / "log.txt") as url:
        address = url.replace("http", "ws") + "/glasspool/pool?session=guessed"
        for origin in ("http://elsewhere.example", None):
            with pytest.raises(InvalidStatus) as refused, connect(address, origin=origin):
                pass
            assert refused.value.response.status_code == 403
        with connect(address, origin=url) as socket, pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
        assert closed.value.rcvd.code == NO_SESSION
        log = (tmp_path / "log.txt").read_text()
    assert "Traceback" not in log
