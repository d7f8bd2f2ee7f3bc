"""One browser session: which source it watches, at which moment, and what it has selected.

The canvas's socket commands it (play, seek, jump ...) and pages read it; both may be slow, so a
command only says where to go, and `look` goes there. See dashboard/past.py for what a moment is.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dashboard.cells import MARK_RECORDS
from dashboard.feed import Feed, Phase, Status
from dashboard.history import EVENTS
from dashboard.past import PastError
from dashboard.scene import Scene
from dashboard.selection import Selection
from engine.events import FoldError, PoolState
from engine.events.records import Header

T = TypeVar("T")

LONGEST_PAUSE = 1.0
"""Seconds that an idle stretch of the past lasts at most when it is played."""
SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
RECORDS_A_TICK = 40
"""Records that playing may move on at once; a longer way is faster from a keyframe."""


@dataclass(frozen=True)
class Look:
    """The moment as every view of the session shows it.

    `current` says whether figures may be shown at all: not before a keyframe, in a gap, or as the
    newest of an engine that is gone. `ago` is how many seconds of the source lie between this moment
    and now (live) or the end (recorded). `rows` are the history up to the moment, see history.ROW.
    `oldest` and `newest` are the seqs that can be shown.
    """

    feed: Feed
    scene: Scene
    status: Status
    header: Header | None
    live: bool
    playing: bool
    speed: float
    current: bool
    seq: int
    step: int
    time: float
    ago: float
    oldest: int
    newest: int
    rows: np.ndarray
    selection: Selection
    notice: str | None

    @property
    def upto(self) -> int | None:
        """The seq at which everything shown ends; None for live, which has no end."""
        return None if self.live else self.seq

    def read(self, reader: Callable[[PoolState], T]) -> T | None:
        """`reader` of the state at this moment, or of a newer one where it has moved on since."""
        return self.scene.read(reader) if self.current else None


class Session:
    """Thread-safe. `clock` gives seconds; tests have their own."""

    def __init__(
        self,
        feed: Feed,
        *,
        seq: int | None = None,
        at: float | None = None,
        selection: Selection | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`seq` is the moment of a share link, or `at` is, in seconds of Unix time; without either it
        is live, or a trace played from its start."""
        self.lock = threading.RLock()
        self._clock = clock
        self.selection = selection or Selection()
        self.open(feed, seq, at)

    def open(self, feed: Feed, seq: int | None = None, at: float | None = None) -> None:
        """Watch another source; the selection stays with the old one."""
        with self.lock:
            if getattr(self, "feed", feed) is not feed:
                self.selection = Selection()
            self.feed = feed
            follows = seq is None and at is None
            self.live = feed.live and follows
            self.playing = not feed.live and follows
            self.speed = 1.0
            self.notice: str | None = None
            self._wanted = seq
            self._wanted_at = at
            self._seq: int | None = None
            self._own = Scene()
            self._generation: int | None = None
            self._at = 0.0
            self._ticked = self._clock()

    # -- commands: where to go --------------------------------------------------------------------

    def go_live(self) -> None:
        """Follow the newest record; for a recording, go to its end."""
        with self.lock:
            self.notice = None
            self._wanted_at = None
            self.playing = False
            self.live = self.feed.live
            if not self.live:
                self._wanted = self._last()

    def go(self, seq: int) -> None:
        """Stand still at record `seq`, or at the one nearest to it."""
        with self.lock:
            self._leave_live()
            self.playing = False
            self._wanted = seq

    def go_to_step(self, step: int) -> None:
        """Stand still after the last record of an engine step."""
        rows = self.feed.history.rows()
        at = int(np.searchsorted(rows["step"], step, side="right")) - 1
        if at >= 0:
            self.go(int(rows["seq"][at]))

    def play(self) -> None:
        """Move on at the recorded pace times `speed`; from the start where there is no more."""
        with self.lock:
            if self.live:
                return
            self.notice = None
            if self._target() >= self._last() and not self.feed.live:
                self._wanted = self._first()
            self.playing = True
            self._set_clock()

    def pause(self) -> None:
        """Stand still here; a live session leaves live."""
        with self.lock:
            self._leave_live()
            self.playing = False

    def step(self, by: int) -> None:
        """`by` records on (or back), past holes."""
        with self.lock:
            self._leave_live()
            self.playing = False
            target = self._target() + by
            if self.feed.past is not None:
                target = self.feed.past.nearest(target, forward=by > 0)
            self._wanted = max(self._first(), min(target, self._last()))

    def jump(self, column: str, forward: bool) -> bool:
        """To the next or previous record with such an event (a column of history.EVENTS).

        False where there is none, and a notice says so.
        """
        if column not in EVENTS:
            raise ValueError(f"{column!r} is no kind of event to jump to: {', '.join(EVENTS)}")
        with self.lock:
            self._leave_live()
            self.playing = False
            found = self.feed.history.jump(self._target(), column, forward)
            if found is None:
                where = "after this step" if forward else "before this step"
                self.notice = f"no {column} {where}"
                return False
            self.notice = None
            self._wanted = found
            return True

    def set_speed(self, speed: float) -> None:
        """One of SPEEDS; the nearest is taken."""
        with self.lock:
            self.speed = min(SPEEDS, key=lambda known: abs(known - speed))

    def select(self, **what: int | str | None) -> None:
        """Change the selection: `request=` an id or None, `block=` a number or None."""
        with self.lock:
            self.selection = Selection(
                **{"request": self.selection.request, "block": self.selection.block, **what}
            )

    # -- looking ----------------------------------------------------------------------------------

    @property
    def seq(self) -> int | None:
        """The record at which a session that is not live stands; None before it has looked."""
        return self._seq

    @property
    def restless(self) -> bool:
        """Whether `look` may find another moment although the feed has not changed."""
        return self.playing or self._wanted is not None or self._wanted_at is not None

    def look(self) -> Look:
        """Go where the commands say, and give what is to be seen there."""
        with self.lock:
            feed = self.feed
            self._notice_a_new_engine()
            if not self.live:
                self._find_time()
                self._advance()
                self._move()
            scene = feed.scene if self.live else self._own
            status = feed.status
            with scene.lock:
                state = scene.state
                known = state is not None and state.complete
                seq, step = (state.seq, state.step) if state is not None else (-1, -1)
                moment = state.time if state is not None else 0.0
            rows = feed.history.rows(None if self.live else seq)
            return Look(
                feed=feed,
                scene=scene,
                status=status,
                header=feed.header,
                live=self.live,
                playing=self.playing,
                speed=self.speed,
                current=known and (status.current or not self.live),
                seq=seq,
                step=step,
                time=moment,
                ago=self._ago(moment),
                oldest=self._first(),
                newest=self._last(),
                rows=rows,
                selection=self.selection,
                notice=self.notice,
            )

    def _ago(self, moment: float) -> float:
        rows = self.feed.history.rows()
        newest = float(rows["time"][-1]) if len(rows) else moment
        idle = time.monotonic() - self.feed.last_arrival if self.feed.live else 0.0
        return 0.0 if self.live else max(0.0, newest - moment) + idle

    def _first(self) -> int:
        return -1 if self.feed.past is None else self.feed.past.first_seq

    def _last(self) -> int:
        return -1 if self.feed.past is None else self.feed.past.last_seq

    def _target(self) -> int:
        """Where this session is, or is about to be."""
        if self._wanted is not None:
            return self._wanted
        if self._seq is not None:
            return self._seq
        return self._last() if self.feed.live else self._first()

    def _leave_live(self) -> None:
        self.notice = None
        self._wanted_at = None
        if self.live:
            self.live = False
            self._wanted = self._last()

    def _notice_a_new_engine(self) -> None:
        generation = self.feed.generation
        if self._generation is None and generation:
            self._generation = generation
        if self._generation is not None and generation != self._generation:
            self._generation = generation
            self._own, self._seq = Scene(), None
            if not self.live:
                self.live, self.playing, self._wanted = self.feed.live, False, None
                self.notice = "the engine was restarted: what it did before is gone"

    def _set_clock(self) -> None:
        rows = self.feed.history.rows()
        at = int(np.searchsorted(rows["seq"], self._target(), side="right"))
        if at:
            self._at = float(rows["time"][at - 1])
        elif len(rows):
            self._at = float(rows["time"][0])
        self._ticked = self._clock()

    def _advance(self) -> None:
        """Play: on by as many records as their times say."""
        now = self._clock()
        elapsed, self._ticked = now - self._ticked, now
        if not self.playing:
            return
        rows = self.feed.history.rows()
        at = int(np.searchsorted(rows["seq"], self._target(), side="right"))
        if self._seq is None and at < len(rows):
            self._at = float(rows["time"][at])
        longest = LONGEST_PAUSE * self.speed
        if at < len(rows):
            self._at = max(self._at, float(rows["time"][at]) - longest)
        self._at += min(elapsed, 1.0) * self.speed
        end = min(len(rows), at + RECORDS_A_TICK)
        while at < end and rows["time"][at] <= self._at:
            self._wanted = int(rows["seq"][at])
            at += 1
            if at < end:
                self._at = max(self._at, float(rows["time"][at]) - longest)
        if at >= len(rows) and self.feed.status.phase is not Phase.READING and len(rows):
            self.playing = False
            if self.feed.live:
                self.live = True

    def _find_time(self) -> None:
        """A link to a time becomes one to the record before it, once that has been read."""
        header, rows = self.feed.header, self.feed.history.rows()
        if self._wanted_at is None or header is None or not len(rows):
            return
        moment = self._wanted_at - header.wall_time + header.monotonic
        if moment > rows["time"][-1] and self.feed.status.phase is Phase.READING:
            return
        self._wanted_at = None
        at = int(np.searchsorted(rows["time"], moment, side="right")) - 1
        if at < 0:
            self.notice = "the time of this link lies before what is known here: this is the oldest"
        self._wanted = int(rows["seq"][max(0, at)])

    def _move(self) -> None:
        """Bring the own scene to where it is wanted."""
        past = self.feed.past
        if past is None or past.last_seq < past.first_seq or self.feed.scene.grid is None:
            return
        wanted = self._target()
        if wanted > past.last_seq and self.feed.status.phase in (Phase.READING, Phase.CONNECTING):
            return  # a share link into a trace that is still being read
        if wanted == self._seq:
            self._wanted = None
            return
        try:
            seq = past.nearest(max(wanted, past.first_seq))
            if not self._follow(seq):
                start = max(past.run_start(seq), seq - MARK_RECORDS)
                self._own.show(past.state_at(start), past.records(start, seq))
        except (PastError, FoldError) as error:
            self.notice = str(error)
            self._wanted = None
            return
        self._seq = self._own.seq
        self._wanted = None

    def _follow(self, seq: int) -> bool:
        """Fold on to `seq` where that is near; False where it is not to be had so."""
        own = self._own
        if own.state is None or not own.state.complete or not 0 <= seq - own.seq <= RECORDS_A_TICK:
            return False
        try:
            for record in self.feed.past.records(own.seq, seq):
                own.apply(record)
        except FoldError:
            return False  # a hole lies between
        return own.seq == seq
