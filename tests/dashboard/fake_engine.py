"""An event stream as an engine serves it, over a SimulatedEngine, with faults on demand."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from engine.events import PoolState, encode
from engine.events.records import Gap, Step
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe


class FakeEngine:
    """Serves /v1/events: header and keyframe first, then a step whenever a test asks for one."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.connections = 0
        self._changed = threading.Condition()
        self._sent: list[bytes] = []
        self._dropped = 0
        self._closed = self._refusing = False
        self._server = serve(self._client, "127.0.0.1", 0)
        self.restart(engine)

    @property
    def url(self) -> str:
        host, port = self._server.socket.getsockname()
        return f"http://{host}:{port}"

    def restart(self, engine: SimulatedEngine) -> None:
        """Another engine process at the same address: who was connected is not any more."""
        with self._changed:
            self.engine = engine
            self.state = PoolState(engine.header)
            self.state.apply(empty_keyframe())
            self._sent = []
            self._dropped += 1
            self._changed.notify_all()

    def step(self, count: int = 1) -> None:
        """Run steps and send each."""
        for _ in range(count):
            self._send([encode(self._turn())])

    def step_unseen(self, count: int, why: str) -> None:
        """Run steps that nobody is sent, then send the gap and a keyframe."""
        after = self.state.seq
        for _ in range(count):
            self._turn()
        self._send([encode(Gap(after, count, why)), encode(self.state.keyframe())])

    def send_step_out_of_order(self) -> None:
        """A stream with a hole that no gap record owns up to."""
        self._turn()
        self._send([encode(self._turn())])

    @contextmanager
    def running(self, seconds: float = 0.05) -> Iterator[None]:
        """Steps in the background, one each `seconds`."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(seconds):
                self.step()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def close(self) -> None:
        """The engine goes away: nobody answers at its address any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()

    def refuse(self, refusing: bool) -> None:
        """While refusing, who is connected is not any more and nobody else gets in."""
        with self._changed:
            self._refusing = refusing
            self._dropped += 1
            self._changed.notify_all()

    def drop_connections(self) -> None:
        with self._changed:
            self._dropped += 1
            self._changed.notify_all()

    def _turn(self) -> Step:
        step = self.engine.step()
        self.state.apply(step)
        return step

    def _send(self, lines: list[bytes]) -> None:
        with self._changed:
            self._sent.append(b"\n".join(lines))
            self._changed.notify_all()

    def _news(self, position: int, dropped: int) -> bool:
        return self._closed or len(self._sent) > position or self._dropped != dropped

    def _client(self, socket: ServerConnection) -> None:
        assert socket.request.path == "/v1/events"
        with self._changed:
            if self._refusing:
                return
            self.connections += 1
            first = [encode(self.engine.header), encode(self.state.keyframe())]
            position, dropped = len(self._sent), self._dropped
        try:
            socket.send(b"\n".join(first).decode())
            while True:
                with self._changed:
                    self._changed.wait_for(partial(self._news, position, dropped))
                    if self._closed or self._dropped != dropped:
                        return
                    news, position = self._sent[position:], len(self._sent)
                for message in news:
                    socket.send(message.decode())
        except ConnectionClosed:
            return


@contextmanager
def fake_engine(engine: SimulatedEngine) -> Iterator[FakeEngine]:
    fake = FakeEngine(engine)
    thread = threading.Thread(target=fake._server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.close()
        thread.join(timeout=5)
