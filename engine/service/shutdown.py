"""Running until a signal, and ending well.

first signal   no new connections, new requests are refused, running ones go on
they end, or the timeout passes, or a second signal comes
then           what is left is aborted and told so, the recording is closed, the process ends
"""

import asyncio
import logging
import signal
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from engine.service.context import ServiceContext
from engine.service.ports import is_loopback
from engine.service.viewer_connection import ViewerConnection

log = logging.getLogger("glasspool")
SECONDS_FOR_LAST_BYTES = 3
"""How long connections have to take what was written, once the engine has stopped."""
SECONDS_FOR_VIEWERS = 2.0
"""How long viewers have to read the last records."""


def run_until_signal(
    app: FastAPI, context: ServiceContext, host: str, port: int, drain_seconds: float
) -> None:
    """Serve `app` until SIGINT or SIGTERM; returns when all has ended."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        ws=ViewerConnection,
        log_level="warning",
        timeout_graceful_shutdown=SECONDS_FOR_LAST_BYTES,
        # On loopback nothing is won by fewer bytes, and each viewer would be compressed for alone.
        ws_per_message_deflate=not is_loopback(host),
    )
    # uvicorn listens to both while it serves, and then restores what was before: when all has ended
    # but this process itself, another signal would only spoil its exit code.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _Server(config, context, drain_seconds).run()


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, context: ServiceContext, drain_seconds: float
    ) -> None:
        super().__init__(config)
        self._context = context
        self._engine = context.engine
        self._hurried = False
        self._drain_seconds = drain_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal asks for an end, the second for one at once.

        uvicorn's own way to hurry (`force_exit`) is not taken: it cuts requests off, with a traceback
        each. Once the engine has stopped, they end by themselves.
        """
        self._hurried = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list | None = None) -> None:
        for server in self.servers:
            server.close()
        self._engine.refuse_new_requests()
        await self._drain()
        await asyncio.to_thread(self._engine.stop)
        await self._tell_viewers()
        await super().shutdown(sockets)

    async def _tell_viewers(self) -> None:
        """Let viewers read how it ended; one that does not read is not waited for long."""
        viewers, event_log = self._context.viewers, self._context.event_log
        deadline = time.monotonic() + SECONDS_FOR_VIEWERS
        while viewers.longest_queue(event_log) and not self._hurried:
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.02)

    async def _drain(self) -> None:
        """Wait for running requests. Viewers of the events stay connected and see it."""
        if self._engine.unfinished and self._drain_seconds > 0:
            log.info(
                "stopping: %d unfinished requests have up to %g s; signal again to stop at once",
                self._engine.unfinished,
                self._drain_seconds,
            )
        deadline = time.monotonic() + self._drain_seconds
        while self._engine.alive and self._engine.unfinished and not self._hurried:
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.05)
        if self._engine.unfinished:
            log.warning("stopped with %d unfinished requests: aborted", self._engine.unfinished)
