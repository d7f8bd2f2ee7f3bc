"""A shutdown in the moment in which a viewer leaves: its connection is closing, but still there."""

import socket
import threading

import pytest
import uvicorn
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from engine.service.ports import free_port
from engine.service.viewer_connection import ViewerConnection
from tests.servers import wait_until

MORE_THAN_SOCKETS_HOLD = "x" * 20_000_000


async def talkative(scope, receive, send) -> None:
    """Says more than a client reads that does not read, then waits until it is gone."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": MORE_THAN_SOCKETS_HOLD})
    while (await receive())["type"] != "websocket.disconnect":
        pass


@pytest.fixture
def server():
    config = uvicorn.Config(
        talkative,
        port=free_port(),
        ws=ViewerConnection,
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=30,
    )
    return uvicorn.Server(config)


@pytest.fixture
def serving(server):
    """Runs it in a thread; what `run` raised is in the list at the end."""
    failures = []

    def run() -> None:
        try:
            server.run()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, what="it listens")
    yield thread, failures
    server.should_exit = True
    thread.join(20)


def connection(server) -> ViewerConnection:
    [found] = server.server_state.connections
    return found


def viewer(server, client: socket.socket) -> ClientProtocol:
    client.connect(("127.0.0.1", server.config.port))
    protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{server.config.port}/"), max_size=None)
    protocol.send_request(protocol.connect())
    client.sendall(b"".join(protocol.data_to_send()))
    while protocol.state.name == "CONNECTING":
        protocol.receive_data(client.recv(128))
    return protocol


def test_a_viewer_that_said_goodbye_and_reads_no_more_is_not_waited_for(server, serving):
    thread, failures = serving
    with socket.socket() as client:
        protocol = viewer(server, client)
        protocol.send_close(1001)
        client.sendall(b"".join(protocol.data_to_send()))
        wait_until(lambda: connection(server).transport.is_closing(), what="the goodbye is read")
        assert connection(server).transport.get_write_buffer_size() > 0
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "it waits for the viewer"
    assert failures == []


def test_a_viewer_that_is_there_is_told(server, serving):
    thread, failures = serving
    with socket.socket() as client:
        protocol = viewer(server, client)
        server.should_exit = True
        while data := client.recv(1 << 20):
            protocol.receive_data(data)
        thread.join(10)
        assert not thread.is_alive()
    assert protocol.close_rcvd.code == 1012
    assert failures == []
