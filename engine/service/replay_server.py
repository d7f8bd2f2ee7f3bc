"""`glasspool replay TRACE --serve`: a recording, played through the same WebSocket as a live engine.

The player reads the trace in a thread of its own at the pace at which it was recorded, times `speed`, and
puts each record into an event log; from there on it is the stream that a live engine has. It begins
when the first viewer is there, and at the end stays at the last state.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from engine import __version__
from engine.core.config import ConfigError
from engine.events import FoldError, PoolState, TraceError, TraceReader
from engine.events.records import Header, Keyframe, Step
from engine.service import errors, stream
from engine.service.engine_thread import EngineStopped
from engine.service.event_log import EventLog
from engine.service.guards import OriginGuard
from engine.service.ports import base_url, check_port, is_loopback
from engine.service.viewer_connection import ViewerConnection
from engine.service.viewers import Viewers

log = logging.getLogger("glasspool")
LONGEST_PAUSE = 60.0
"""Seconds of a recording in which nothing happened are shortened to this."""


class TracePlayer:
    """Plays one trace; a Source of the stream. Call `open` first: it reads up to the first keyframe."""

    def __init__(self, path: Path, speed: float) -> None:
        """Raises TraceError."""
        self.path = path
        self.speed = speed
        self.event_log = EventLog()
        self.viewers = Viewers()
        self._trace = TraceReader(path)
        self._records = iter(self._trace)
        self._state = PoolState(self._trace.header)
        first = next(self._records, None)
        if not isinstance(first, Keyframe):
            raise TraceError(f"{path}: no keyframe follows the header, so nothing can be played")
        self._state.apply(first)
        self.event_log.begin_after(first.seq)
        self._recorded_start = first.time - self._trace.header.monotonic
        self._started: float | None = None
        self._questions: queue.SimpleQueue[Future[Keyframe] | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)

    @property
    def header(self) -> Header:
        """The recording's, with its clock set to the time of the replay: its first record is now."""
        started = time.time() if self._started is None else self._started
        return msgspec.structs.replace(self._trace.header, wall_time=started - self._recorded_start)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._questions.put(None)
        self._thread.join()
        self._trace.close()

    async def keyframe(self) -> Keyframe:
        """The state after the last record in the log. Raises EngineStopped."""
        if self._stopped.is_set():
            raise EngineStopped("the player has stopped")
        question: Future[Keyframe] = Future()
        self._questions.put(question)
        return await asyncio.wrap_future(question)

    # -- in the player's thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._wait_for(lambda: bool(self.viewers.connected))
            self._play()
        except (TraceError, FoldError) as error:
            log.error("%s; the replay stays where it is", error)
        while not self._stopped.is_set():
            self._answer(None)

    def _play(self) -> None:
        self._started = time.time()
        recorded, started = self._state.time, time.monotonic()
        for record in self._records:
            if self._stopped.is_set():
                return
            if isinstance(record, Step):
                due = started + (record.time - recorded) / self.speed
                if due - time.monotonic() > LONGEST_PAUSE:
                    started -= due - time.monotonic() - LONGEST_PAUSE
                    due = time.monotonic() + LONGEST_PAUSE
                self._wait_until(due)
                self._state.apply(record)
                self.event_log.append(record)
                self._wake()
                continue
            self._state.apply(record)
            if isinstance(record, Keyframe) and record.seq > self.event_log.last:
                # Records are missing before it: viewers find the hole, and get a gap and a keyframe.
                self.event_log.begin_after(record.seq)
                self._wake()
        log.info("played %s to its end", self.path)
        if self._trace.cut_off:
            log.warning(self._trace.cut_off)

    def _wake(self) -> None:
        if self.event_log.waited_for:
            self._loop.call_soon_threadsafe(self.event_log.wake)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self._stopped.is_set():
            self._answer(0.1)

    def _wait_until(self, due: float) -> None:
        while not self._stopped.is_set() and (left := due - time.monotonic()) > 0:
            self._answer(left)

    def _answer(self, seconds: float | None) -> None:
        """Answer one question for the state, or wait so long for one."""
        try:
            question = self._questions.get(timeout=seconds)
        except queue.Empty:
            return
        if question is not None and question.set_running_or_notify_cancel():
            question.set_result(self._state.keyframe())


def replay_app(player: TracePlayer) -> FastAPI:
    """The routes of a live engine that a recording can answer: its stream, and whether it is there."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        player.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(player.stop)

    app = FastAPI(title="Glasspool replay", version=__version__, lifespan=lifespan)
    app.state.context = player
    app.include_router(stream.router)
    app.add_exception_handler(HTTPException, errors.on_http_error)
    app.add_middleware(OriginGuard)

    @app.get("/health")
    async def health() -> dict:
        return {"status": "ok", "model": player.header.model, "replay": player.path.name}

    return app


def serve_replay(path: Path, host: str, port: int, speed: float) -> None:
    """Play until SIGINT or SIGTERM. Raises ConfigError and TraceError before anything is served."""
    if not 0 < speed < float("inf"):
        raise ConfigError(f"speed is {speed}; it is above 0, 1 is as fast as it was recorded")
    check_port(host, port, "--port")
    app = replay_app(TracePlayer(path, speed))
    log.info("replaying %s on %s, from the first viewer on", path, base_url(host, port))
    uvicorn.run(
        app,
        host=host,
        port=port,
        ws=ViewerConnection,
        ws_per_message_deflate=not is_loopback(host),
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
