"""The life of one request, folded from records: what each of its sequences did, and with whom.

    sequence 7   queued ──► prefill ──► decode ──► preempted ──► recompute ──► decode ──► (ends)
    sequence 8                          decode ─────────────────────────────────────────► (ends)

A phase begins where a step makes it so and lasts until another begins. Times are seconds of the
producer's clock. Where records are missing the phases end, and begin anew after them.
"""

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum

from engine.events import PoolState
from engine.events.records import (
    Computed,
    Fork,
    Preempt,
    PrefixLookup,
    RequestAdded,
    RequestFinished,
    SequenceFinished,
    SequenceStatus,
    Step,
)

MAX_PHASES = 4_000
MAX_WORK = 2_000
"""Steps whose tokens are kept, the last ones."""


class PhaseKind(StrEnum):
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"
    RECOMPUTE = "recompute"


@dataclass(frozen=True)
class Phase:
    """A stretch of one sequence's life, from `start` to `end`; it began in engine step `step`."""

    sequence: int
    kind: PhaseKind
    start: float
    end: float
    step: int
    seq: int


@dataclass(frozen=True)
class Work:
    """Tokens of the request that one step computed, of all its sequences, by kind."""

    seq: int
    step: int
    time: float
    prefill: int
    decode: int
    recompute: int


@dataclass
class _Sequence:
    """`known` tokens exist, `computed` have KV; the newest was drawn at `last_token`."""

    known: int
    computed: int
    kind: PhaseKind
    since: float
    step: int
    seq: int
    last_token: float | None = None


class RequestStory:
    """Feed it a state with `load`, then each step record after it with `note`, in order.

    `steps` counts the steps that computed tokens of the request, `mates` in how many of them each
    other request was computed too. `whole` says that its arrival was seen. `first_seq` is where the
    story begins.
    """

    def __init__(self, request: str) -> None:
        self.request = request
        self.seq = self.first_seq = -1
        self.steps = 0
        self.whole = False
        self.mates: Counter[str] = Counter()
        self.work: deque[Work] = deque(maxlen=MAX_WORK)
        self.holes: list[tuple[float, float]] = []
        self.finished: RequestFinished | None = None
        self.token_waits = 0
        self.wait_seconds = 0.0
        self.longest_wait = 0.0
        self._prompt_tokens = 0
        self._phases: deque[Phase] = deque(maxlen=MAX_PHASES)
        self._sequences: dict[int, _Sequence] = {}
        self._request_of: dict[int, str] = {}
        self._time = 0.0

    def load(self, state: PoolState) -> None:
        """Begin at a state, or go on from one where records are missing before it."""
        if self.seq >= 0 or self._time:
            self.holes.append((self._time, state.time))
            for number in list(self._sequences):
                self._close(number, self._time)
        else:
            self.first_seq = state.seq
        self.seq, self._time = state.seq, state.time
        self._request_of = {s.sequence: s.request for s in state.sequences.values()}
        asked = state.requests.get(self.request)
        if asked is None:
            return
        self._prompt_tokens = asked.prompt_tokens
        for sequence in state.sequences.values():
            if sequence.request != self.request:
                continue
            clock = state.tally.sequences[sequence.sequence]
            kind = _kind_of(sequence.status, clock.known > asked.prompt_tokens)
            since = asked.arrived if kind is PhaseKind.QUEUED else state.time
            self._sequences[sequence.sequence] = _Sequence(
                *(clock.known, clock.computed, kind, since, state.step, state.seq),
                clock.last_token,
            )

    def note(self, step: Step) -> None:
        """Take in the next step record."""
        spent = step.durations
        end = step.time + spent.schedule + spent.model + spent.sample
        self.seq, self._time = step.seq, end
        work = dict.fromkeys((PhaseKind.PREFILL, PhaseKind.DECODE, PhaseKind.RECOMPUTE), 0)
        computed: set[str] = set()
        for event in step.events:
            match event:
                case Computed():
                    computed.add(self._request_of[event.sequence])
                    if event.sequence in self._sequences:
                        self._computed(event, step, end, work)
                case RequestAdded():
                    self._added(event, step)
                case Fork():
                    self._fork(event, step, end)
                case PrefixLookup() if event.sequence in self._sequences:
                    self._sequences[event.sequence].computed = event.hit
                case Preempt() if event.sequence in self._sequences:
                    self._sequences[event.sequence].computed = 0
                    self._enter(event.sequence, PhaseKind.PREEMPTED, step.time, step)
                case SequenceFinished():
                    self._request_of.pop(event.sequence, None)
                    if event.sequence in self._sequences:
                        self._close(event.sequence, end)
                case RequestFinished() if event.request == self.request:
                    self.finished = event
        if self.request in computed:
            self.steps += 1
            self.mates.update(computed - {self.request})
            self.work.append(Work(step.seq, step.step, step.time, *work.values()))

    @property
    def queue_seconds(self) -> float | None:
        """From arrival to the first schedule; None where that is not seen, or not over."""
        first = self._phases[0] if self.whole and self._phases else None
        queued = first is not None and first.kind is PhaseKind.QUEUED
        return first.end - first.start if queued else None

    def phases(self) -> list[Phase]:
        """All phases by now, oldest first; those that go on end at the story's end."""
        going_on = [
            Phase(number, s.kind, s.since, max(s.since, self._time), s.step, s.seq)
            for number, s in self._sequences.items()
        ]
        return [*self._phases, *going_on]

    def _added(self, event: RequestAdded, step: Step) -> None:
        self._request_of[event.sequence] = event.request
        if event.request == self.request:
            self.whole = True
            self._prompt_tokens = event.prompt_tokens
            self._sequences[event.sequence] = _Sequence(
                *(event.prompt_tokens, 0, PhaseKind.QUEUED),
                *(min(event.arrived, step.time), step.step, step.seq),
            )

    def _fork(self, event: Fork, step: Step, end: float) -> None:
        self._request_of[event.child] = self._request_of[event.parent]
        parent = self._sequences.get(event.parent)
        if parent is not None:
            self._sequences[event.child] = _Sequence(
                *(parent.known, parent.computed, PhaseKind.DECODE, end, step.step, step.seq),
                parent.last_token,
            )

    def _computed(
        self, event: Computed, step: Step, end: float, work: dict[PhaseKind, int]
    ) -> None:
        sequence = self._sequences[event.sequence]
        new = PhaseKind.DECODE if sequence.known > self._prompt_tokens else PhaseKind.PREFILL
        work[PhaseKind.RECOMPUTE] += event.recomputed
        work[new] += event.tokens - event.recomputed
        kind = PhaseKind.RECOMPUTE if event.recomputed else new
        self._enter(event.sequence, kind, step.time, step)
        sequence.computed += event.tokens
        if sequence.computed < sequence.known:
            return
        # Where all known tokens have KV, one more is drawn: see engine/events/totals.py.
        sequence.known = sequence.computed + 1
        if sequence.last_token is not None:
            wait = end - sequence.last_token
            self.token_waits += 1
            self.wait_seconds += wait
            self.longest_wait = max(self.longest_wait, wait)
        sequence.last_token = end

    def _enter(self, number: int, kind: PhaseKind, at: float, step: Step) -> None:
        sequence = self._sequences[number]
        if sequence.kind is not kind:
            self._keep(number, sequence, at)
            sequence.kind, sequence.since = kind, max(at, sequence.since)
            sequence.step, sequence.seq = step.step, step.seq

    def _close(self, number: int, at: float) -> None:
        self._keep(number, self._sequences.pop(number), at)

    def _keep(self, number: int, s: _Sequence, end: float) -> None:
        if end > s.since:
            self._phases.append(Phase(number, s.kind, s.since, end, s.step, s.seq))


def _kind_of(status: SequenceStatus, drew: bool) -> PhaseKind:
    match status:
        case SequenceStatus.WAITING:
            return PhaseKind.QUEUED
        case SequenceStatus.PREEMPTED:
            return PhaseKind.PREEMPTED
        case SequenceStatus.RUNNING:
            return PhaseKind.DECODE if drew else PhaseKind.PREFILL
