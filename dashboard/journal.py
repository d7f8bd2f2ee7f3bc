"""The recent past in words: a plain line for each noteworthy event, and the requests that ended."""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from dashboard.readable import plural, seconds, shortened
from engine.events import PoolState
from engine.events.records import (
    CopyOnWrite,
    Fork,
    Gap,
    Preempt,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    ScheduledKind,
    SequenceScheduled,
    Share,
    ShareWhy,
    Step,
)

_TOLD = frozenset(
    (
        RequestAdded,
        Fork,
        Share,
        Preempt,
        SequenceScheduled,
        CopyOnWrite,
        RequestFinished,
        RequestRejected,
    )
)

MAX_LINES = 200
MAX_ENDED = 50


class LineKind(StrEnum):
    PREEMPTED = "preempted"
    RESUMED = "resumed"
    COPIED = "copied"
    FORKED = "forked"
    FINISHED = "finished"
    REJECTED = "rejected"
    MISSING = "missing"


@dataclass(frozen=True)
class Line:
    """One line of the ticker. `step` is None for what belongs to the stream and not to a step."""

    kind: LineKind
    step: int | None
    text: str


@dataclass(frozen=True)
class EndedRequest:
    """A finished or rejected request; None where the source said nothing of it."""

    request: str
    outcome: str
    prompt_tokens: int | None
    n: int | None
    output_tokens: int | None = None
    preemptions: int | None = None
    recomputed_tokens: int | None = None
    first_token_seconds: float | None = None
    duration_seconds: float | None = None


class Journal:
    """Newest first in `lines` and `ended`."""

    def __init__(self) -> None:
        self.lines: deque[Line] = deque(maxlen=MAX_LINES)
        self.ended: deque[EndedRequest] = deque(maxlen=MAX_ENDED)
        self._request_of: dict[int, str] = {}
        self._asked: dict[str, tuple[int, int]] = {}

    def load(self, state: PoolState) -> None:
        """Learn who is unfinished from a keyframe's state."""
        self._request_of = {s.sequence: s.request for s in state.sequences.values()}
        self._asked = {r.request: (r.prompt_tokens, r.n) for r in state.requests.values()}

    def gap(self, gap: Gap) -> None:
        self.missing(f"{plural(gap.count, 'step record')} missing here: {gap.why}")

    def missing(self, text: str) -> None:
        """Say what the stream itself lacks."""
        self.lines.appendleft(Line(LineKind.MISSING, None, text))

    def note(self, state: PoolState, step: Step) -> None:
        """Take down what one step record says; `state` has applied it."""
        children: dict[int, list[int]] = {}
        shared: dict[int, int] = {}
        copies: dict[int, list[CopyOnWrite]] = {}
        for event in step.events:
            if type(event) not in _TOLD:
                continue  # most are not, and there are hundreds in a step
            match event:
                case RequestAdded():
                    self._request_of[event.sequence] = event.request
                    self._asked[event.request] = (event.prompt_tokens, event.n)
                case Fork():
                    self._request_of[event.child] = self._request_of[event.parent]
                    children.setdefault(event.parent, []).append(event.child)
                case Share(why=ShareWhy.FORK):
                    shared[event.sequence] = shared.get(event.sequence, 0) + 1
                case Preempt():
                    self._say(LineKind.PREEMPTED, step, self._preempted(event))
                case SequenceScheduled(kind=ScheduledKind.RESUMED):
                    text = f"{self._name(event.sequence)} runs again"
                    self._say(LineKind.RESUMED, step, text)
                case CopyOnWrite():
                    copies.setdefault(event.source, []).append(event)
                case RequestFinished():
                    self._finished(event, step)
                case RequestRejected():
                    self._rejected(event, step)
        for parent, forked in children.items():
            self._say(LineKind.FORKED, step, self._forked(parent, forked, shared.get(forked[0], 0)))
        for source, made in copies.items():
            self._say(LineKind.COPIED, step, self._copied(source, made))
        self._forget(state)

    def _say(self, kind: LineKind, step: Step, text: str) -> None:
        self.lines.appendleft(Line(kind, step.step, text))

    def _name(self, sequence: int) -> str:
        return f"sequence {sequence} (request {shortened(self._request_of[sequence])})"

    def _forked(self, parent: int, children: list[int], shared: int) -> str:
        who = "it shares" if len(children) == 1 else "each shares"
        return (
            f"{self._name(parent)} was forked into {_listed('sequence', children)}: "
            f"{who} {plural(shared, 'block')} with it"
        )

    def _copied(self, source: int, made: list[CopyOnWrite]) -> str:
        targets = _listed("block", [event.target for event in made])
        writers = _listed("sequence", [event.sequence for event in made])
        return f"shared block {source} was copied to {targets}, for {writers} to write to"

    def _preempted(self, event: Preempt) -> str:
        if event.victim_of == event.sequence:
            why = "because no block was free for itself"
        else:
            why = f"for sequence {event.victim_of}"
        return (
            f"{self._name(event.sequence)} was preempted {why}: "
            f"{plural(event.blocks_released, 'block')} released, "
            f"{plural(event.tokens_lost, 'token')} to compute again"
        )

    def _finished(self, event: RequestFinished, step: Step) -> None:
        prompt_tokens, n = self._asked.get(event.request, (None, None))
        self.ended.appendleft(
            EndedRequest(
                event.request,
                f"finished ({event.reason})",
                prompt_tokens,
                n,
                event.output_tokens,
                event.preemptions,
                event.recomputed_tokens,
                event.first_token_seconds,
                event.duration_seconds,
            )
        )
        text = (
            f"request {shortened(event.request)} finished ({event.reason}): "
            f"{plural(event.output_tokens, 'token')} in {seconds(event.duration_seconds)}"
        )
        self._say(LineKind.FINISHED, step, text)

    def _rejected(self, event: RequestRejected, step: Step) -> None:
        why = event.why.replace("_", " ")
        self.ended.appendleft(
            EndedRequest(event.request, f"rejected ({why})", event.prompt_tokens, None)
        )
        text = f"request {shortened(event.request)} was rejected: {why}"
        self._say(LineKind.REJECTED, step, text)

    def _forget(self, state: PoolState) -> None:
        # Only now: the events of the step itself may still name what ended in it.
        if len(self._request_of) > len(state.sequences):
            gone = self._request_of.keys() - state.sequences.keys()
            for sequence in gone:
                del self._request_of[sequence]
        if len(self._asked) > len(state.requests):
            for request in self._asked.keys() - state.requests.keys():
                del self._asked[request]


def _listed(noun: str, numbers: list[int]) -> str:
    return f"{noun if len(numbers) == 1 else noun + 's'} {', '.join(map(str, numbers))}"
