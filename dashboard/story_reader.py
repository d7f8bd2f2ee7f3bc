"""Finds the records of one request's life in the past, and keeps its story going.

A reader belongs to one browser session. While the moment moves on it folds only what is new; where
the moment goes back, or to another request, it begins again.
"""

from collections.abc import Callable
from weakref import ref

from dashboard.history import History
from dashboard.journal import EndedRequest
from dashboard.past import Past, PastError
from dashboard.request_story import RequestStory
from engine.events import PoolState

MAX_RECORDS = 8_192
"""Records that a story goes back at most from where it is told."""
MARGIN_RECORDS = 2
"""A request may be recorded a step after it arrived."""
TELL_EVERY = 256


class StoryReader:
    """Not thread-safe. `story` costs a keyframe and the request's records at first."""

    def __init__(self) -> None:
        # Weak: the past of an engine that was restarted is not to be kept for this.
        self._past: ref[Past] | None = None
        self._story: RequestStory | None = None
        self._last_state: tuple[ref[Past], int, PoolState | None] | None = None

    def story(
        self,
        past: Past,
        request: str,
        start: int,
        upto: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> RequestStory:
        """The story of `request` from record `start` up to `upto`. Raises PastError.

        `progress` is told records done, of how many.
        """
        story = self._story
        same = story is not None and story.request == request and self._past() is past
        if not same or story.seq > upto:
            first = max(start, upto - MAX_RECORDS, past.first_seq)
            story = RequestStory(request)
            story.load(past.state_at(past.nearest(min(first, upto))))
            self._story, self._past = None, ref(past)
        begun = story.seq
        for record in past.records(begun, upto):
            if record.seq != story.seq + 1:
                story.load(past.state_at(record.seq))
                continue
            story.note(record)
            if (record.seq - begun) % TELL_EVERY == 0:
                progress(record.seq - begun, upto - begun)
        self._story = story
        return story

    def state_before(self, past: Past, seq: int) -> PoolState | None:
        """The pool before record `seq`, for the tables of what ended in it; None where not kept."""
        kept = self._last_state
        if kept is None or kept[0]() is not past or kept[1] != seq:
            try:
                state = _before_releases(past, seq)
            except PastError:
                state = None
            kept = self._last_state = (ref(past), seq, state)
        return kept[2]


def _before_releases(past: Past, seq: int) -> PoolState | None:
    if seq - 1 < past.first_seq or past.nearest(seq - 1) != seq - 1:
        return None
    return past.state_at(seq - 1)


def start_of(history: History, arrived: float) -> int:
    """A record from which a request that arrived at `arrived` (producer's clock) is wholly seen."""
    rows = history.rows()
    at = int(rows["time"].searchsorted(arrived, side="right"))
    return int(rows["seq"][max(0, at - 1)]) - MARGIN_RECORDS if len(rows) else -1


def arrival_of(ended: EndedRequest, history: History, upto: int) -> float | None:
    """At the latest when an ended request had not yet arrived; None where nobody says."""
    if ended.duration_seconds is None:
        return None
    rows = history.rows(upto)
    at = int(rows["seq"].searchsorted(ended.seq))
    if at >= len(rows) or rows["seq"][at] != ended.seq:
        return None
    return float(rows["time"][at]) - ended.duration_seconds
