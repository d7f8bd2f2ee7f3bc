"""The one thread that owns the engine. Others hand it calls, and get futures."""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from engine.core.config import RequestError
from engine.core.sequence import Request
from engine.core.snapshot import Snapshot
from engine.events.records import Header, Step
from engine.llm import LLMEngine
from engine.service.event_log import EventLog
from engine.service.outbox import Outbox
from engine.service.recorder import Recorder, Recording

log = logging.getLogger("glasspool")
T = TypeVar("T")


class EngineStopped(RuntimeError):
    """The engine's thread has ended; nothing more can be asked of it."""


class EngineThread:
    """Steps the engine while there is work, and sleeps when there is none.

    Calls run between steps, in the order in which they came. Every record goes to `event_log`, from
    where viewers and the recorder read; what clients wait for leaves through `outbox`.
    """

    def __init__(self, engine: LLMEngine, event_log: EventLog) -> None:
        self.engine = engine
        self.event_log = event_log
        self.recorder: Recorder | None = None
        self.outbox = Outbox()
        self.failure: str | None = None
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future]] = queue.SimpleQueue()
        self._stopping = False
        self._accepting = True
        # Closes the door: after it, no call can be queued that nobody would answer.
        self._door = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        engine.on_record = self._on_record

    def record(self, recording: Recording, header: Header) -> None:
        """Record the run, from its start: called before `start`. Raises OSError."""
        self.recorder = Recorder(
            recording, header, self.engine.keyframe(), self.event_log, self.snapshot
        )

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to step; deliver to `loop`."""
        self.outbox.open(loop)
        if self.recorder is not None:
            self.recorder.start()
        self._thread.start()

    def stop(self) -> None:
        """End after the current step; unfinished requests are aborted, the recording is closed."""

        def stop() -> None:
            self._stopping = True

        with contextlib.suppress(EngineStopped):
            self.call(stop)
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Run a function in the engine's thread, between steps."""
        future: Future[T] = Future()
        with self._door:
            if self._stopping:
                raise EngineStopped(self.failure or "the engine has stopped")
            self._calls.put((function, future))
        return future

    def add(self, requests: list[Request]) -> "Future[None]":
        """Queue all of these, or none. The future raises RequestError for one that can never run."""
        if not self._accepting:
            raise EngineStopped("the server is shutting down: send the request to another")

        def add() -> None:
            for number, request in enumerate(requests):
                try:
                    self.engine.add(request)
                except RequestError:
                    for added in requests[:number]:
                        self.engine.abort(added.request_id)
                    raise

        return self.call(add)

    def refuse_new_requests(self) -> None:
        """From now on `add` raises EngineStopped; what runs goes on."""
        self._accepting = False

    def abort(self, requests: list[Request]) -> "Future[None]":
        """End those of these that are unfinished; a later request of the same name is left alone."""

        def abort() -> None:
            unfinished = self.engine.scheduler.requests
            for request in requests:
                if unfinished.get(request.request_id) is request:
                    self.engine.abort(request.request_id)

        return self.call(abort)

    def reset_prefix_cache(self) -> "Future[bool]":
        """False, and nothing changes, while a block is active."""
        return self.call(self.engine.reset_prefix_cache)

    @property
    def unfinished(self) -> int:
        """Requests in the engine, as of this moment."""
        return len(self.engine.scheduler.requests)

    def snapshot(self) -> "Future[Snapshot]":
        """The live state after the last record in the log; the caller makes a keyframe of it."""
        return self.call(self.engine.snapshot)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._answer_calls()
                # A keyframe that a call asked for may have told a record, with readers waiting.
                self.outbox.flush()
                self.engine.step()
                self.outbox.flush()
        except Exception as error:
            self.failure = f"the engine failed: {type(error).__name__}: {error}"
            log.exception("the engine failed")
        finally:
            self._close()

    def _answer_calls(self) -> None:
        """Answer what is queued; with no work for the model, wait for a call first."""
        wait = not self.engine.has_work
        while True:
            try:
                function, future = self._next_call(wait)
            except queue.Empty:
                return
            wait = False
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

    def _next_call(self, wait: bool) -> tuple[Callable[[], Any], Future]:
        return self._calls.get() if wait else self._calls.get_nowait()

    def _on_record(self, record: Step) -> None:
        self.event_log.append(record)
        if self.event_log.waited_for:
            self.outbox.put(self.event_log.wake, None)

    def _close(self) -> None:
        with self._door:
            self._stopping = True
        error = EngineStopped(self.failure or "the engine has stopped")
        while not self._calls.empty():
            _, future = self._calls.get()
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        for request_id in list(self.engine.scheduler.requests):
            self.engine.abort(request_id)
        self.engine.tell()
        self.outbox.flush()
        if self.recorder is not None:
            self.recorder.stop()
