"""From the engine's thread to the event loop: what a step gave to all clients, in one call.

A wake-up of the loop costs more than a token's text. So a step's deliveries are collected and
handed over together when the step has ended.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any


class Outbox:
    """Filled and flushed by the engine's thread; delivers in the event loop, in order."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._items: list[tuple[Callable[[Any], None], Any]] = []

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver to this loop from now on."""
        self._loop = loop

    def put(self, deliver: Callable[[Any], None], item: Any) -> None:
        """Have `deliver(item)` called in the loop after the next flush."""
        self._items.append((deliver, item))

    def flush(self) -> None:
        if not self._items:
            return
        items, self._items = self._items, []
        if self._loop is not None:
            # A closed loop has no clients any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_deliver, items)


def _deliver(items: list[tuple[Callable[[Any], None], Any]]) -> None:
    for deliver, item in items:
        deliver(item)
