"""Who may ask, from where, and how much; and that a refusal costs nobody else anything."""

import concurrent.futures

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from engine.core.config import ConfigError
from engine.service.guards import MAX_BODY_BYTES
from engine.service.ports import free_port, is_loopback
from engine.service.settings import checked_api_key
from tests.servers import EngineServer, Process, wait_until

KEY = "correct-horse"


@pytest.fixture(scope="module")
def locked():
    """A server with an API key and one allowed Origin."""
    environment = {"GLASSPOOL_API_KEY": KEY}
    options = ("--model", "none", "--allowed-origins", "https://notebook.example")
    with EngineServer(*options, **environment) as server:
        yield server


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "path", ["/metrics", "/version", "/v1/models", "/v1/pool", "/openapi.json", "/nothing"]
)
@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(KEY[:-1]), {"Authorization": KEY}])
def test_nothing_is_told_without_the_key(locked, path, headers):
    answer = httpx.get(locked.url + path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer KEY" in answer.json()["error"]["message"]
    assert KEY not in answer.text
    known = httpx.get(locked.url + path, headers=bearer(KEY)).status_code
    assert known == (404 if path == "/nothing" else 200)


def test_health_needs_no_key(locked):
    assert httpx.get(f"{locked.url}/health").status_code == 200


def test_the_key_is_in_no_output(locked):
    assert KEY not in locked.output


def test_the_stream_asks_for_the_key_too(locked):
    with pytest.raises(InvalidStatus) as refused:
        connect(locked.events_url)
    assert refused.value.response.status_code == 401
    assert b"API key" in refused.value.response.body
    with connect(locked.events_url, additional_headers=bearer(KEY)) as socket:
        assert '"type":"header"' in socket.recv(10)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_page_of_another_origin_may_not_use_the_server(locked, origin):
    headers = {"Origin": origin, **bearer(KEY)}
    with pytest.raises(InvalidStatus) as refused:
        connect(locked.events_url, additional_headers=headers)
    assert refused.value.response.status_code == 403
    answer = httpx.post(f"{locked.url}/reset_prefix_cache", headers=headers)
    assert answer.status_code == 403
    assert origin in answer.json()["error"]["message"]
    assert "access-control-allow-origin" not in answer.headers


def test_the_servers_own_page_and_allowed_ones_may(locked):
    own = {"Origin": locked.url, **bearer(KEY)}
    assert httpx.get(f"{locked.url}/version", headers=own).status_code == 200
    allowed = {"Origin": "https://notebook.example", **bearer(KEY)}
    answer = httpx.get(f"{locked.url}/version", headers=allowed)
    assert answer.headers["access-control-allow-origin"] == "https://notebook.example"
    with connect(locked.events_url, additional_headers=allowed) as socket:
        assert socket.recv(10)
    asked = {"Origin": allowed["Origin"], "Access-Control-Request-Method": "POST"}
    assert httpx.options(f"{locked.url}/v1/completions", headers=asked).status_code == 200


def test_by_default_no_page_of_another_origin_is_allowed(engine_server):
    answer = httpx.get(f"{engine_server.url}/version", headers={"Origin": "https://a.example"})
    assert answer.status_code == 403


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_10_mb_is_refused_and_others_are_served(engine_server, chunked):
    body = b'{"prompt": "' + b"x" * 10_000_000 + b'"}'
    content = (body[i : i + 65536] for i in range(0, len(body), 65536)) if chunked else body
    headers = {"Content-Type": "application/json"}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(engine_server.complete, "Other", max_tokens=30, ignore_eos=True)
        answer = httpx.post(
            f"{engine_server.url}/v1/completions", content=content, headers=headers, timeout=60
        )
        assert other.result().json()["usage"]["completion_tokens"] == 30
    assert answer.status_code == 413
    assert "larger than 8 MiB" in answer.json()["error"]["message"]


def test_a_long_prompt_below_that_is_refused_for_its_length(engine_server):
    answer = engine_server.complete("x" * (MAX_BODY_BYTES // 4), max_tokens=1)
    assert answer.status_code == 400
    assert "max_model_len 512" in answer.json()["error"]["message"]


def test_a_public_address_without_a_key_is_warned_of(tmp_path):
    port = str(free_port())
    with Process("serve", "--model", "none", "--host", "0.0.0.0", "--port", port) as process:
        wait_until(lambda: "ready on" in process.output, 60, "the server is ready")
        assert "WARNING: listening on 0.0.0.0 without an API key" in process.output
        assert "--api-key" in process.output


def test_loopback_is_not_warned_of(engine_server):
    assert "WARNING" not in engine_server.output


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_addresses(host, loopback):
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("key", ["", "two words", "umlaut-ü", "line\n"])
def test_a_key_that_no_header_carries_is_refused_and_not_shown(key):
    with pytest.raises(ConfigError, match="API key") as refused:
        checked_api_key(key)
    assert not key or key not in str(refused.value)
