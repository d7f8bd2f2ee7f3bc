"""Many clients of one stream, over real sockets: those that come and go, and those that stop reading."""

import asyncio
import contextlib
import random
import socket
import threading

import psutil
import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.sync.client import connect as connect_sync

from engine.core.config import SamplingParams
from engine.core.sequence import Request
from engine.events import PoolState, decode
from engine.events.records import Gap, Heartbeat, Step
from engine.service.app import create_app
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineThread
from engine.service.event_log import EventLog
from engine.service.ports import free_port
from tests.core.driver import Driver, config, header, sorted_rows
from tests.servers import wait_until


class Served:
    """A model-free engine that steps as fast as it can, served by uvicorn in this process."""

    def __init__(self, ring: int) -> None:
        self.driver = Driver(config(num_blocks=64, max_model_len=256))
        self.log = EventLog(size=ring)
        self.thread = EngineThread(self.driver.engine, self.log)
        context = ServiceContext(self.thread, self.log, header(self.driver.config), tokenizer=None)
        self.viewers = context.viewers
        self.port = free_port()
        self.url = f"ws://127.0.0.1:{self.port}/v1/events"
        settings = uvicorn.Config(
            create_app(context), port=self.port, log_level="error", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(settings)
        self._runner = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> "Served":
        self._runner.start()
        wait_until(lambda: self._server.started, 20, "uvicorn is up")
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._runner.join(20)

    def generate(self, requests: int, tokens: int = 100) -> None:
        """Run so many requests side by side, to their ends."""
        done = threading.Semaphore(0)
        for number in range(requests):
            self.thread.add(
                [
                    Request(
                        f"r{number}",
                        [1 + number % 5, 2, 3],
                        SamplingParams(max_tokens=tokens, n=1 + number % 3, ignore_eos=True),
                        0.0,
                        on_finish=lambda _: done.release(),
                    )
                ]
            ).result(20)
        for _ in range(requests):
            assert done.acquire(timeout=60)

    def live(self):
        return sorted_rows(self.thread.snapshot().result(10).keyframe())


def socket_with_a_small_window(port: int) -> socket.socket:
    """Connected; the system keeps little of what nobody reads."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    return connection


class Client:
    """Reads, leaves politely or not, and comes back where it was."""

    def __init__(self, served: Served, seed: int) -> None:
        self.served = served
        self.draw = random.Random(seed)
        self.state: PoolState | None = None
        self.gaps = self.resumed = 0

    async def wander(self, until: asyncio.Event) -> None:
        while not until.is_set():
            await self._visit(self.draw.randrange(1, 30))
            await asyncio.sleep(self.draw.random() * 0.05)

    async def read_to(self, seq: int) -> None:
        while self.state is None or not self.state.complete or self.state.seq < seq:
            await self._visit(10_000, seq)

    async def _visit(self, messages: int, to: int | None = None) -> None:
        url, state = self.served.url, self.state
        if state is not None and state.complete and self.draw.random() < 0.7:
            url += f"?after={state.seq}&engine_id={state.header.engine_id}"
            self.resumed += 1
        else:
            self.state = None
        async with connect(url, max_size=None, ping_interval=None) as stream:
            for _ in range(messages):
                try:
                    async with asyncio.timeout(0.3):
                        message = await stream.recv()
                except TimeoutError:
                    break
                self._fold(message)
                if to is not None and self.state.complete and self.state.seq >= to:
                    break
            if self.draw.random() < 0.5:
                stream.transport.abort()

    def _fold(self, message: str) -> None:
        for line in message.split("\n"):
            record = decode(line)
            if record.__class__.__name__ == "Header":
                if self.state is None:
                    self.state = PoolState(record)
            else:
                self.gaps += isinstance(record, Gap)
                self.state.apply(record)


def test_16_clients_that_join_leave_and_drop_at_random_all_end_with_the_live_state():
    async def run(served: Served) -> list[Client]:
        clients = [Client(served, seed) for seed in range(16)]
        over = asyncio.Event()
        wandering = [asyncio.ensure_future(client.wander(over)) for client in clients]
        for _ in range(6):
            await asyncio.to_thread(served.generate, 12)
            await asyncio.sleep(0.1)
        over.set()
        await asyncio.gather(*wandering)
        await asyncio.gather(*(client.read_to(served.log.last) for client in clients))
        return clients

    with Served(ring=256) as served:
        clients = asyncio.run(run(served))
        live = served.live()
        assert served.log.last > 3 * 256, "the ring ran over"
        for client in clients:
            assert sorted_rows(client.state.keyframe()) == live
        assert sum(client.resumed for client in clients) > 4
        wait_until(lambda: not served.viewers.connected, 10, "none of them is still counted")


def test_a_client_that_stops_reading_costs_no_memory_and_ends_right_when_it_reads_again():
    with Served(ring=2048) as served, socket_with_a_small_window(served.port) as raw:
        served.generate(60)
        assert served.log.last > served.log.size, "the ring is as large as it gets"
        # The client's library takes one message more than it is asked for, and no more.
        with connect_sync(
            served.url, sock=raw, max_size=None, max_queue=1, ping_interval=None
        ) as stream:
            state = PoolState(decode(stream.recv(10)))
            state.apply(decode(stream.recv(10)))
            before = psutil.Process().memory_info().rss
            (viewer,) = served.viewers.connected
            for _ in range(100):
                served.generate(12)
                # Twice, for what was on its way already.
                if served.log.last - viewer.cursor > 2 * served.log.size:
                    break
            grown = psutil.Process().memory_info().rss - before
            assert served.log.last - viewer.cursor > served.log.size, "it is far behind"
            assert grown < 30e6
            gaps = 0
            while not (state.complete and state.seq == served.log.last):
                for line in stream.recv(10).split("\n"):
                    record = decode(line)
                    gaps += isinstance(record, Gap)
                    state.apply(record)
            assert gaps >= 1
            assert served.viewers.dropped > 0
            assert served.viewers.resyncs == gaps
            assert sorted_rows(state.keyframe()) == served.live()


def test_an_idle_stream_has_a_heartbeat(monkeypatch):
    monkeypatch.setattr("engine.service.stream.SECONDS_PER_HEARTBEAT", 0.05)
    with Served(ring=16) as served, connect_sync(served.url) as stream:
        decoded = [decode(stream.recv(10)) for _ in range(4)]
        assert [type(record) for record in decoded[2:]] == [Heartbeat, Heartbeat]
        assert decoded[2].seq == served.log.last
        assert decoded[3].time > decoded[2].time
        state = PoolState(decoded[0])
        state.apply(decoded[1])
        before = state.keyframe()
        state.apply(decoded[2])
        assert state.keyframe() == before


def test_what_comes_close_together_shares_a_message():
    with Served(ring=4096) as served, connect_sync(served.url, max_size=None) as stream:
        stream.recv(10)
        first = decode(stream.recv(10)).seq + 1
        served.generate(12)
        messages = records = 0
        with contextlib.suppress(TimeoutError):
            while True:
                lines = stream.recv(0.5).split("\n")
                records += sum(isinstance(decode(line), Step) for line in lines)
                messages += 1
        assert records == served.log.last + 1 - first
        assert messages < records / 2


@pytest.mark.parametrize("after", [-5, 10**9])
def test_a_place_that_is_not_in_the_log_gets_a_keyframe(after):
    with Served(ring=64) as served:
        served.generate(3)
        engine = header(served.driver.config).engine_id
        with connect_sync(f"{served.url}?after={after}&engine_id={engine}") as stream:
            assert '"type":"header"' in stream.recv(10)
            assert '"type":"keyframe"' in stream.recv(10)
