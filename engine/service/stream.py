"""WS /v1/events: the pool as it changes.

A client gets the header, a keyframe, then step records: each text message holds one or more records,
one JSON line each. `?after=SEQ&engine_id=ID` goes on after record SEQ without a keyframe, where this
is still that engine and the log still reaches back so far.
"""

import asyncio

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from engine.events.codec import encode
from engine.events.records import Gap
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineStopped

router = APIRouter()
RECORDS_PER_MESSAGE = 256


@router.websocket("/v1/events")
async def events(socket: WebSocket, after: int = -1, engine_id: str = "") -> None:
    """Send records until the client goes away or the engine stops."""
    context: ServiceContext = socket.app.state.context
    await socket.accept()
    gone = asyncio.ensure_future(_until_gone(socket))
    sending = asyncio.ensure_future(_send_records(socket, context, after, engine_id))
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


async def _send_records(
    socket: WebSocket, context: ServiceContext, after: int, engine_id: str
) -> None:
    log = context.event_log
    await socket.send_text(encode(context.header).decode())
    if engine_id == context.header.engine_id and log.holds(after):
        cursor = after
    else:
        cursor = await _send_keyframe(socket, context)
    while True:
        lines = log.read(cursor, RECORDS_PER_MESSAGE)
        if lines is None:
            keyframe_at = await _send_keyframe(socket, context, lost_after=cursor)
            cursor = keyframe_at
        elif lines:
            await socket.send_text(b"\n".join(lines).decode())
            cursor += len(lines)
        else:
            await log.wait_beyond(cursor)


async def _send_keyframe(
    socket: WebSocket, context: ServiceContext, lost_after: int | None = None
) -> int:
    """Send the live state, after a gap where records were lost; returns the seq it stands for."""
    keyframe = await asyncio.wrap_future(context.engine.keyframe())
    if lost_after is not None:
        gap = Gap(lost_after, keyframe.seq - lost_after, "this client read too slowly")
        await socket.send_text(encode(gap).decode())
    line = await asyncio.to_thread(encode, keyframe)
    await socket.send_text(line.decode())
    return keyframe.seq


async def _until_gone(socket: WebSocket) -> None:
    """The client has nothing to say here; what it sends is dropped."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
