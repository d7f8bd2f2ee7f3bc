"""Every preemption as a story: who lost its blocks, for whom, and what it took to get back.

    step 412   sequence 9 loses 6 blocks, 88 tokens        (sequence 7 needed a block)
    step 431   it is scheduled again, 32 tokens of them are still cached
    step 431   56 tokens are computed again: it is back where it was

The log is told every record once, as it comes. A story asked for as of an earlier moment ends there.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from engine.events import PoolState
from engine.events.records import (
    Computed,
    Fork,
    Preempt,
    PrefixLookup,
    RequestAdded,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Step,
)

MAX_STORIES = 10_000


class Outcome(StrEnum):
    """How far a story has come."""

    WAITING = "waiting"
    RESUMED = "catching up"
    CAUGHT_UP = "caught up"
    PREEMPTED_AGAIN = "preempted again"
    ENDED = "ended"
    UNSEEN = "not seen: records are missing"


@dataclass(frozen=True)
class Preemption:
    """One story as of a moment; None for what has not come to pass by then.

    `needy` is who needed the block. `found` tokens were still cached on resuming, `recomputed` had to
    be computed again (by then). `away_seconds` go from the preemption to the step that resumed it,
    `delay_seconds` to the end of the step in which it was back where it was. `work_seconds` is the
    part of the steps' durations that its recomputed tokens had in their tokens.
    """

    seq: int
    step: int
    time: float
    sequence: int
    request: str
    needy_sequence: int
    needy: str
    blocks_released: int
    tokens_lost: int
    outcome: Outcome
    resumed_step: int | None
    resumed_seq: int | None
    found: int | None
    recomputed: int
    work_seconds: float
    away_seconds: float | None
    delay_seconds: float | None


@dataclass(frozen=True)
class _Resumed:
    seq: int
    step: int
    time: float


@dataclass(frozen=True)
class _Recomputed:
    seq: int
    tokens: int
    seconds: float
    end: float


@dataclass
class _Story:
    seq: int
    step: int
    time: float
    event: Preempt
    request: str
    needy: str
    resumed: _Resumed | None = None
    found: int | None = None
    recomputed: list[_Recomputed] = field(default_factory=list)
    over: tuple[int, Outcome] | None = None

    def as_of(self, upto: int | None) -> Preemption:
        def known(seq: int) -> bool:
            return upto is None or seq <= upto

        resumed = self.resumed if self.resumed and known(self.resumed.seq) else None
        work = [part for part in self.recomputed if known(part.seq)]
        tokens = sum(part.tokens for part in work)
        back = None
        if resumed is not None:
            back = self._back(resumed, work)
        outcome = Outcome.WAITING if resumed is None else Outcome.RESUMED
        if back is not None:
            outcome = Outcome.CAUGHT_UP
        elif self.over is not None and known(self.over[0]):
            outcome = self.over[1]
        return Preemption(
            seq=self.seq,
            step=self.step,
            time=self.time,
            sequence=self.event.sequence,
            request=self.request,
            needy_sequence=self.event.victim_of,
            needy=self.needy,
            blocks_released=self.event.blocks_released,
            tokens_lost=self.event.tokens_lost,
            outcome=outcome,
            resumed_step=None if resumed is None else resumed.step,
            resumed_seq=None if resumed is None else resumed.seq,
            found=None if resumed is None else self.found,
            recomputed=tokens,
            work_seconds=sum(part.seconds for part in work),
            away_seconds=None if resumed is None else resumed.time - self.time,
            delay_seconds=None if back is None else back - self.time,
        )

    def _back(self, resumed: _Resumed, work: list[_Recomputed]) -> float | None:
        """When all that was lost had KV again."""
        have = self.found or 0
        if have >= self.event.tokens_lost:
            return resumed.time
        for part in work:
            have += part.tokens
            if have >= self.event.tokens_lost:
                return part.end
        return None


class PreemptionLog:
    """Oldest first. One thread writes; `stories` may be called by any under the feed's lock."""

    def __init__(self) -> None:
        self._stories: deque[_Story] = deque(maxlen=MAX_STORIES)
        self._open: dict[int, _Story] = {}
        self._request_of: dict[int, str] = {}

    def load(self, state: PoolState, unbroken: bool) -> None:
        """Learn who is who from a keyframe; not `unbroken`: records are missing before it."""
        if not unbroken:
            for story in self._open.values():
                story.over = (state.seq, Outcome.UNSEEN)
            self._open.clear()
        self._request_of = {s.sequence: s.request for s in state.sequences.values()}

    def note(self, step: Step) -> None:
        """Take in the next step record."""
        for event in step.events:
            kind = type(event)
            if kind is Computed:
                # Most events are these, and most of them repeat nothing.
                if event.recomputed and event.sequence in self._open:
                    self._recomputed(event, step)
                continue
            handle = _HANDLERS.get(kind)
            if handle is not None:
                handle(self, event, step)

    def stories(self, upto: int | None = None) -> list[Preemption]:
        """The stories known after record `upto` (None: now), newest first."""
        end = len(self._stories)
        if upto is not None:
            end = bisect_right(self._stories, upto, key=lambda story: story.seq)
        return [self._stories[at].as_of(upto) for at in range(end - 1, -1, -1)]

    def _added(self, event: RequestAdded, step: Step) -> None:
        self._request_of[event.sequence] = event.request

    def _fork(self, event: Fork, step: Step) -> None:
        self._request_of[event.child] = self._request_of[event.parent]

    def _preempt(self, event: Preempt, step: Step) -> None:
        before = self._open.get(event.sequence)
        if before is not None:
            before.over = (step.seq, Outcome.PREEMPTED_AGAIN)
        story = _Story(
            *(step.seq, step.step, step.time, event),
            *(self._request_of[event.sequence], self._request_of[event.victim_of]),
        )
        self._open[event.sequence] = story
        self._stories.append(story)

    def _scheduled(self, event: SequenceScheduled, step: Step) -> None:
        if event.kind is ScheduledKind.RESUMED and event.sequence in self._open:
            self._open[event.sequence].resumed = _Resumed(step.seq, step.step, step.time)

    def _lookup(self, event: PrefixLookup, step: Step) -> None:
        if event.sequence in self._open:
            self._open[event.sequence].found = event.hit

    def _recomputed(self, event: Computed, step: Step) -> None:
        spent = step.durations
        seconds = spent.schedule + spent.model + spent.sample
        share = seconds * event.recomputed / max(1, step.tokens.total)
        part = _Recomputed(step.seq, event.recomputed, share, step.time + seconds)
        self._open[event.sequence].recomputed.append(part)

    def _sequence_finished(self, event: SequenceFinished, step: Step) -> None:
        self._request_of.pop(event.sequence, None)
        story = self._open.pop(event.sequence, None)
        if story is not None:
            story.over = (step.seq, Outcome.ENDED)


_HANDLERS = {
    RequestAdded: PreemptionLog._added,
    Fork: PreemptionLog._fork,
    Preempt: PreemptionLog._preempt,
    SequenceScheduled: PreemptionLog._scheduled,
    PrefixLookup: PreemptionLog._lookup,
    SequenceFinished: PreemptionLog._sequence_finished,
}
