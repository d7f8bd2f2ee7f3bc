"""WS /v1/events: the pool as it changes.

A client gets the header, a keyframe, then step records: each text message holds one or more records,
one JSON line each. `?after=SEQ&engine_id=ID` goes on after record SEQ without a keyframe, where this
is still that engine and the log still reaches back so far. Where nothing happens, a heartbeat says so.
"""

import asyncio
import time
from typing import Protocol

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from engine.events.codec import encode
from engine.events.records import Gap, Header, Heartbeat, Keyframe
from engine.service.engine_thread import EngineStopped
from engine.service.event_log import EventLog
from engine.service.viewers import Viewer, Viewers

router = APIRouter()
RECORDS_PER_MESSAGE = 256
SECONDS_BETWEEN_MESSAGES = 0.03
"""Records that come within this time share a message: no screen shows more."""
SECONDS_PER_HEARTBEAT = 5.0


class Source(Protocol):
    """What a stream is made from: a live engine, or a trace that is played."""

    header: Header
    event_log: EventLog
    viewers: Viewers

    async def keyframe(self) -> Keyframe:
        """The state after the last record in the log. Raises EngineStopped."""


@router.websocket("/v1/events")
async def events(socket: WebSocket, after: int = -1, engine_id: str = "") -> None:
    """Send records until the client goes away or the engine stops."""
    source: Source = socket.app.state.context
    await socket.accept()
    gone = asyncio.ensure_future(_until_gone(socket))
    sending = asyncio.ensure_future(_Sender(socket, source).run(after, engine_id))
    try:
        await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    except EngineStopped:
        await socket.close(1001, "the engine has stopped")
    except (WebSocketDisconnect, RuntimeError):
        """The client went away while something was being sent."""
    finally:
        gone.cancel()
        sending.cancel()
        await asyncio.gather(gone, sending, return_exceptions=True)


class _Sender:
    """Sends to one client, as fast as it reads."""

    def __init__(self, socket: WebSocket, source: Source) -> None:
        self.socket = socket
        self.source = source
        self.viewer = Viewer(source.event_log.last)

    async def run(self, after: int, engine_id: str) -> None:
        """Until cancelled. Raises EngineStopped, and what a closed socket raises."""
        header, log = self.source.header, self.source.event_log
        connected = self.source.viewers.connected
        connected.add(self.viewer)
        try:
            await self._send(encode(header))
            if engine_id == header.engine_id and log.holds(after):
                self.viewer.cursor = after
            else:
                await self._send_keyframe()
            while True:
                await self._send_news()
        finally:
            connected.discard(self.viewer)

    async def _send_news(self) -> None:
        log, viewer = self.source.event_log, self.viewer
        entries = log.read(viewer.cursor, RECORDS_PER_MESSAGE)
        if entries is None:
            await self._send_gap()
        elif entries:
            await self._send(b"\n".join([entry.line for entry in entries]))
            viewer.cursor = entries[-1].record.seq
            self.source.viewers.note_sent(entries, time.monotonic())
            if viewer.cursor == log.last:
                await asyncio.sleep(SECONDS_BETWEEN_MESSAGES)
        else:
            try:
                async with asyncio.timeout(SECONDS_PER_HEARTBEAT):
                    await log.wait_beyond(viewer.cursor)
            except TimeoutError:
                await self._send(encode(Heartbeat(viewer.cursor, time.monotonic())))

    async def _send_gap(self) -> None:
        """Records were overwritten before this client read them: say how many, and begin anew."""
        after = self.viewer.cursor
        keyframe = await self.source.keyframe()
        viewers = self.source.viewers
        viewers.dropped += keyframe.seq - after
        viewers.resyncs += 1
        await self._send(encode(Gap(after, keyframe.seq - after, "this client read too slowly")))
        await self._send_keyframe(keyframe)

    async def _send_keyframe(self, keyframe: Keyframe | None = None) -> None:
        if keyframe is None:
            keyframe = await self.source.keyframe()
        # From here on this client is behind the engine, not before it.
        self.viewer.cursor = keyframe.seq
        await self._send(await asyncio.to_thread(encode, keyframe))

    async def _send(self, line: bytes) -> None:
        await self.socket.send_text(line.decode())


async def _until_gone(socket: WebSocket) -> None:
    """The client has nothing to say here; what it sends is dropped."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
