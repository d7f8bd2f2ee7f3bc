"""What one browser has been told so far, and what it has to be told next.

Everything that one `news` gives is of one look, so the canvas, the figures and the ticker agree.
"""

import time
from collections.abc import Callable
from typing import Any

from dashboard.block_history import Change, block_changes
from dashboard.inspection import prefix_chain
from dashboard.messages import (
    figures_message,
    moment_message,
    selected_message,
    step_of_record,
    ticker_message,
    track_message,
)
from dashboard.scene import Cells, Scene
from dashboard.session import Look, Session
from engine.events import check_state

PIN_CHANGES = 12
FIGURES_SECONDS = 0.5
TRACK_SECONDS = 1.0
CHECK_SECONDS = 1.0
CHECK_COST = 40
"""A check may take one part in so many of the time: a big pool is checked less often."""

Message = dict[str, Any] | Cells


class Viewer:
    """Belongs to one socket; not thread-safe. `clock` gives seconds."""

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock = clock
        self._scene: Scene | None = None
        self._cursor = (-1, -1)
        self._seen = (-2, -2)
        self._told: dict[str, Any] = {}
        self._made: dict[str, tuple[float, tuple]] = {}
        self._version: object = None
        self._looked = 0.0
        self._moving = False
        self._asked: int | None = None
        self._pinned: tuple[Any, list[Change]] = (None, [])
        self._checked: object = None
        self._unchecked: object = None
        self._check_again = 0.0

    def inspect(self, block: int | None) -> None:
        """Which block the pointer is on."""
        self._asked = block
        self._told.pop("inspect", None)
        self._version = None

    @property
    def behind(self) -> bool:
        """Whether there may be something to tell."""
        return (
            self._session.restless
            or self._version != self._standing()
            # Rates over the last seconds move on although no record comes.
            or (self._moving and self._clock() >= self._looked + FIGURES_SECONDS)
        )

    def _standing(self) -> object:
        session = self._session
        return (
            session.feed.version,
            id(session.feed),
            session.live,
            session.seq,  # a page's look may have gone there
            session.playing,
            session.speed,
            session.selection,
            session.notice,
        )

    def news(self) -> list[Message]:
        """Every message that brings the browser up to date, in order."""
        self._version = self._standing()
        look = self._session.look()
        messages: list[Message] = []
        if look.scene is not self._scene:
            self._scene, self._cursor = look.scene, (-1, -1)
        moving = look.live or look.playing
        follows = moving and self._cursor != (-1, -1)
        cells = look.scene.cells(self._cursor, self._seen[0] if follows else None)
        self._tell(messages, "moment", moment_message(look))
        if cells is not None:
            if cells.cursor != self._cursor or (cells.seq, cells.step) != self._seen:
                messages.append(cells)
            self._cursor, self._seen = cells.cursor, (cells.seq, cells.step)
        self._looked, self._moving = self._clock(), moving
        view = (id(look.feed), look.live)
        at = (view, look.seq, look.current)
        self._sometimes(messages, "figures", at, FIGURES_SECONDS, look, figures_message)
        self._sometimes(messages, "ticker", at, FIGURES_SECONDS, look, ticker_message)
        span = (id(look.feed), look.oldest, look.newest)
        self._sometimes(messages, "track", span, TRACK_SECONDS, look, track_message)
        self._check(messages, look, at)
        if self._asked is not None:
            self._tell(messages, "inspect", self._inspected(look, self._asked))
        self._tell(messages, "pin", self._pin(look))
        self._tell(messages, "selected", selected_message(look))
        return messages

    def _tell(self, messages: list[Message], name: str, fact: Any) -> None:
        if name not in self._told or self._told[name] != fact:
            self._told[name] = fact
            messages.append({name: fact})

    def _sometimes(
        self,
        messages: list[Message],
        name: str,
        mark: tuple,
        every: float,
        look: Look,
        make: Callable[[Look], Any],
    ) -> None:
        """Tell `make(look)` each `every` seconds while the moment moves, else where `mark` is new.

        A moment that stands still is told at once: it is where somebody wanted to be; and so is
        another view, which is what the first part of `mark` says.
        """
        made, before = self._made.get(name, (0.0, None))
        if not self._moving and before == mark:
            return
        same_view = before is not None and before[0] == mark[0]
        hurried = self._moving or name == "track"
        if same_view and hurried and self._clock() < made + every:
            self._version = None  # come back for it
            return
        self._tell(messages, name, make(look))
        self._made[name] = (self._clock(), mark)

    def _check(self, messages: list[Message], look: Look, at: tuple) -> None:
        """Tell the verdict of the conservation check, which is slow: never before the cells."""
        if not look.current or at == self._checked:
            return
        now = self._clock()
        if self._moving and now < self._check_again:
            return
        if not self._moving and at != self._unchecked:
            self._unchecked = at
            self._version = None  # look again at the next frame, when the cells are out
            return
        with look.scene.lock:
            state = look.scene.state
            step, faults = state.step, check_state(state)
        self._checked = at
        self._check_again = now + max(CHECK_SECONDS, CHECK_COST * (self._clock() - now))
        self._tell(messages, "books", {"step": step, "faults": faults[:3], "count": len(faults)})

    # -- what is told -------------------------------------------------------------------------------

    def _inspected(self, look: Look, block: int) -> dict[str, Any] | None:
        facts = look.scene.inspect(block) if look.current else None
        if facts is not None:
            del facts["seq"], facts["step"]  # or it would be told anew at every step
            facts["changed_at"] = step_of_record(look, facts["last_change"])
        return facts

    def _pin(self, look: Look) -> dict[str, Any] | None:
        block = look.selection.block
        if block is None:
            return None
        facts = self._inspected(look, block)
        if facts is None:
            return {"block": block, "unknown": True}
        facts["chain"] = look.read(lambda state: prefix_chain(state, block))
        key = (id(look.feed), look.feed.generation, block, facts["last_change"])
        if key != self._pinned[0]:
            changes = []
            if facts["last_change"] >= 0 and look.feed.past is not None:
                changes = block_changes(look.feed.past, block, facts["last_change"], PIN_CHANGES)
            self._pinned = (key, changes)
        changes = self._pinned[1]
        facts["changes"] = [
            {"seq": c.seq, "step": c.step, "text": c.text, "time": c.time - look.header.monotonic}
            for c in changes
        ]
        cached = next((change for change in changes if change.hash is not None), None)
        facts["parent"] = cached.parent if cached and facts["cached_as"] == cached.hash else None
        return facts
