"""The canvas's WebSocket: cells and answers out, questions about blocks in.

    to the browser   text    {"status": …}              when the feed's standing changes
                     binary  cells                      whole first, then what changed
                     text    {"inspect": …} {"pin": …}  about the block asked for, when it changes
    from it          text    {"inspect": block or null} {"pin": block or null}

A binary frame is little-endian: kind (0 whole, 1 changes), number of blocks, number of cells, 0 as
uint32; seq, step as float64; for changes the block numbers as uint32; the cells as uint32.
"""

import asyncio
import contextlib
import json
import struct
from typing import Any
from urllib.parse import urlsplit

from starlette.websockets import WebSocket, WebSocketDisconnect

from dashboard.feed import Cells, Feed
from dashboard.feeds import feed_of
from dashboard.source import source_from_environment

SOCKET_PATH = "/glasspool/pool"
FRAMES_PER_SECOND = 20
_HEAD = struct.Struct("<IIIIdd")
_QUESTIONS = ("inspect", "pin")


def encode_cells(cells: Cells) -> bytes:
    """One binary frame."""
    whole = cells.blocks is None
    head = _HEAD.pack(
        0 if whole else 1, cells.num_blocks, len(cells.values), 0, cells.seq, cells.step
    )
    blocks = b"" if whole else cells.blocks.astype("<u4").tobytes()
    return head + blocks + cells.values.astype("<u4").tobytes()


class Viewer:
    """What one browser has been told so far."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._cursor = (-1, -1)
        self._told: dict[str, Any] = {}
        self._asked: dict[str, int | None] = dict.fromkeys(_QUESTIONS)
        self._seen = (-1, -1)
        self._version = -1

    def ask(self, message: str) -> None:
        """Take a question from the browser; what is none is ignored."""
        try:
            question = json.loads(message)
        except ValueError:
            return
        if not isinstance(question, dict):
            return
        for name in _QUESTIONS:
            if name in question:
                block = question[name]
                self._asked[name] = block if type(block) is int else None
                self._told.pop(name, None)
                self._version = -1

    @property
    def behind(self) -> bool:
        """Whether there may be something to tell."""
        return self._version != self._feed.version

    def news(self) -> list[str | bytes]:
        """Every message that brings the browser up to date, in order."""
        self._version = self._feed.version
        messages: list[str | bytes] = []
        cells = self._feed.cells(self._cursor)
        self._tell(messages, "status", self._status())
        if cells is not None:
            seen = (cells.seq, cells.step)
            if cells.cursor != self._cursor or seen != self._seen:
                messages.append(encode_cells(cells))
            self._cursor, self._seen = cells.cursor, seen
        for name, block in self._asked.items():
            if block is not None:
                self._tell(messages, name, self._feed.inspect(block))
        return messages

    def _tell(self, messages: list[str | bytes], name: str, fact: dict[str, Any] | None) -> None:
        if name not in self._told or self._told[name] != fact:
            self._told[name] = fact
            messages.append(json.dumps({name: fact}))

    def _status(self) -> dict[str, Any]:
        status, header = self._feed.status, self._feed.header
        return {
            "phase": status.phase.value,
            "text": status.text,
            "current": status.current,
            "knows": [] if header is None else list(header.knows),
        }


async def pool_socket(websocket: WebSocket) -> None:
    """Serves one browser until it goes. Pages of another origin are refused."""
    if not _same_origin(websocket):
        await websocket.close(code=1008)
        return
    await websocket.accept()
    viewer = Viewer(feed_of(source_from_environment()))
    asked = asyncio.Event()
    sender = asyncio.create_task(_send(websocket, viewer, asked))
    try:
        while True:
            viewer.ask(await websocket.receive_text())
            asked.set()
    except (WebSocketDisconnect, KeyError):
        pass  # KeyError: a binary message, which nobody of ours sends
    finally:
        sender.cancel()
        with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
            await sender


async def _send(websocket: WebSocket, viewer: Viewer, asked: asyncio.Event) -> None:
    while True:
        if viewer.behind:
            # The lock may be held for as long as a keyframe takes: not on the server's own loop.
            for message in await asyncio.to_thread(viewer.news):
                if isinstance(message, bytes):
                    await websocket.send_bytes(message)
                else:
                    await websocket.send_text(message)
        asked.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asked.wait(), 1 / FRAMES_PER_SECOND)


def _same_origin(websocket: WebSocket) -> bool:
    origin = websocket.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == websocket.headers.get("host")
