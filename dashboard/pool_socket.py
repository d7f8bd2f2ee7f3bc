"""The canvas's WebSocket: one session's moment out, commands and questions in.

    /glasspool/pool?session=TOKEN

    to the browser   binary  cells                    whole first, then what changed
                     text    {"moment": …}            which step is shown, live or not, the banner
                             {"figures": …}           the figures beside the pool at that step
                             {"ticker": …}            the last sentences known at that step
                             {"track": …}             the scrubber's picture, once a second at most
                             {"inspect": …} {"pin": …}  about the block asked for, when it changes
                             {"selected": …}          the selected request's blocks
    from it          text    {"inspect": block or null}
                             {"select": {"block": …, "request": …}}
                             {"do": "play" | "pause" | "live" | "go" | "go_to_step" | "step" | "jump"
                                    | "speed", …}     see _COMMANDS

A binary frame is little-endian: kind (0 whole, 1 changes), number of blocks, number of cells, number
of flashes as uint32; seq, step as float64; for changes the block numbers as uint32; three words a
block as uint32 (dashboard/cells.py); three int32 a flash: Touch, block, source block or -1.
"""

import asyncio
import contextlib
import json
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect

from dashboard.scene import Cells
from dashboard.session import Session
from dashboard.sessions import sessions
from dashboard.viewer import Viewer

SOCKET_PATH = "/glasspool/pool"
FRAMES_PER_SECOND = 25
"""A little more than the 20 that are wanted: what waits for its turn is late else."""
NO_SESSION = 4404
"""Close code: the token is of no session of this server; the page has to run its script again."""
_HEAD = struct.Struct("<IIIIdd")


def encode_cells(cells: Cells) -> bytes:
    """One binary frame."""
    whole = cells.blocks is None
    flashes = np.array([flash[1:] for flash in cells.flashes], "<i4")
    head = _HEAD.pack(
        0 if whole else 1,
        cells.num_blocks,
        len(cells.words),
        len(flashes),
        cells.seq,
        cells.step,
    )
    blocks = b"" if whole else cells.blocks.astype("<u4").tobytes()
    return head + blocks + cells.words.astype("<u4").tobytes() + flashes.tobytes()


def take_message(session: Session, viewer: Viewer, text: str) -> None:
    """Do what a message from the browser says; what cannot be understood is ignored."""
    try:
        message = json.loads(text)
    except ValueError:
        return
    if not isinstance(message, dict):
        return
    if "inspect" in message:
        viewer.inspect(_whole(message["inspect"]))
    if isinstance(message.get("select"), dict):
        _select(session, message["select"])
    name = message.get("do")
    command = _COMMANDS.get(name) if isinstance(name, str) else None
    if command is not None:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            command(session, message)


def _select(session: Session, what: dict[str, Any]) -> None:
    chosen: dict[str, int | str | None] = {}
    if "block" in what:
        chosen["block"] = _whole(what["block"])
    if "request" in what:
        request = what["request"]
        chosen["request"] = request if isinstance(request, str) else None
    session.select(**chosen)


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


_COMMANDS: dict[str, Callable[[Session, dict[str, Any]], Any]] = {
    "play": lambda session, message: session.play(),
    "pause": lambda session, message: session.pause(),
    "live": lambda session, message: session.go_live(),
    "go": lambda session, message: session.go(int(message["seq"])),
    "go_to_step": lambda session, message: session.go_to_step(int(message["step"])),
    "step": lambda session, message: session.step(int(message["by"])),
    "jump": lambda session, message: session.jump(message["to"], bool(message["forward"])),
    "speed": lambda session, message: session.set_speed(float(message["speed"])),
}


async def pool_socket(websocket: WebSocket) -> None:
    """Serves one browser until it goes. Pages of another origin are refused."""
    if not _same_origin(websocket):
        await websocket.close(code=1008)
        return
    await websocket.accept()
    token = websocket.query_params.get("session", "")
    session = sessions().get(token)
    if session is None:
        await websocket.close(code=NO_SESSION)
        return
    viewer = Viewer(session)
    asked = asyncio.Event()
    sender = asyncio.create_task(_send(websocket, token, viewer, asked))
    try:
        while True:
            take_message(session, viewer, await websocket.receive_text())
            asked.set()
    except (WebSocketDisconnect, KeyError):
        pass  # KeyError: a binary message, which nobody of ours sends
    finally:
        sender.cancel()
        with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
            await sender


async def _send(websocket: WebSocket, token: str, viewer: Viewer, asked: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    while True:
        started = loop.time()
        sessions().get(token)  # keeps it alive for as long as somebody watches
        if viewer.behind:
            # Folding and the lock may take as long as a keyframe takes: not on the server's loop.
            for message in await asyncio.to_thread(viewer.news):
                if isinstance(message, Cells):
                    await websocket.send_bytes(encode_cells(message))
                else:
                    await websocket.send_text(json.dumps(message))
        asked.clear()
        with contextlib.suppress(TimeoutError):
            # A frame's own work is part of its time; some is always left to what is asked.
            rest = started + 1 / FRAMES_PER_SECOND - loop.time()
            await asyncio.wait_for(asked.wait(), max(0.005, rest))


def _same_origin(websocket: WebSocket) -> bool:
    origin = websocket.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == websocket.headers.get("host")
