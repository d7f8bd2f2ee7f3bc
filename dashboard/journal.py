"""The recent past in words: a sentence for each noteworthy event, and the requests that ended.

Sentences are made of parts, so that a viewer can link what they name. They are only ever added,
each with the seq at which it became true: at an earlier moment the later ones are not known yet.
Requests that fork and copy at every step (beams) are told at most once in QUIET_STEPS, with counts.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from dashboard.readable import plural, seconds, shortened
from engine.events import PoolState
from engine.events.records import (
    CopyOnWrite,
    Evict,
    Fork,
    Gap,
    Preempt,
    PrefixLookup,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    ScheduledKind,
    SequenceScheduled,
    Step,
)

MAX_LINES = 20_000
MAX_ENDED = 5_000
QUIET_STEPS = 50
"""Steps for which forks, copies and evictions of the same kind are only counted after a line."""


_TOLD = frozenset(
    (
        *(RequestAdded, Fork, CopyOnWrite, Evict, PrefixLookup, Preempt, SequenceScheduled),
        *(RequestFinished, RequestRejected),
    )
)


class LineKind(StrEnum):
    PREEMPTED = "preempted"
    RESUMED = "resumed"
    COPIED = "copied"
    FORKED = "forked"
    SHARED = "shared"
    EVICTED = "evicted"
    FINISHED = "finished"
    REJECTED = "rejected"
    MISSING = "missing"


@dataclass(frozen=True)
class RequestName:
    """A part of a sentence that names a request."""

    request: str


@dataclass(frozen=True)
class BlockName:
    """A part of a sentence that names a block."""

    block: int


Part = str | RequestName | BlockName


@dataclass(frozen=True)
class Line:
    """One sentence. `step` is None for what belongs to the stream and not to a step."""

    kind: LineKind
    seq: int
    step: int | None
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The sentence as plain text."""
        words = []
        for part in self.parts:
            match part:
                case RequestName(request):
                    words.append(f"request {shortened(request)}")
                case BlockName(block):
                    words.append(f"block {block}")
                case _:
                    words.append(part)
        return "".join(words)


@dataclass(frozen=True)
class EndedRequest:
    """A finished or rejected request; None where the source said nothing of it."""

    request: str
    seq: int
    step: int
    outcome: str
    prompt_tokens: int | None
    n: int | None
    output_tokens: int | None = None
    preemptions: int | None = None
    recomputed_tokens: int | None = None
    queue_seconds: float | None = None
    first_token_seconds: float | None = None
    duration_seconds: float | None = None


@dataclass
class _Quiet:
    """What has been left untold about one kind of event of one request since `since`."""

    since: int
    count: int = 0


@dataclass
class _Made:
    """What one request did in one step."""

    children: int = 0
    shared: int = 0
    copies: list[CopyOnWrite] = field(default_factory=list)


class Journal:
    """Oldest first. One thread writes; `lines` and `ended` may be called by any under its lock."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=MAX_LINES)
        self._ended: deque[EndedRequest] = deque(maxlen=MAX_ENDED)
        self._request_of: dict[int, str] = {}
        self._asked: dict[str, tuple[int, int]] = {}
        self._quiet: dict[tuple[LineKind, str], _Quiet] = {}
        self._seq = -1

    def lines(self, count: int, upto: int | None = None) -> list[Line]:
        """The last `count` lines that were known after record `upto`, newest first."""
        return _last(self._lines, count, upto)

    def ended(self, count: int, upto: int | None = None) -> list[EndedRequest]:
        """The last `count` requests that had ended by record `upto`, newest first."""
        return _last(self._ended, count, upto)

    def load(self, state: PoolState) -> None:
        """Learn who is unfinished from a keyframe's state."""
        self._seq = state.seq
        self._request_of = {s.sequence: s.request for s in state.sequences.values()}
        self._asked = {r.request: (r.prompt_tokens, r.n) for r in state.requests.values()}

    def gap(self, gap: Gap) -> None:
        self._seq = max(self._seq, gap.after)
        self.missing(f"{plural(gap.count, 'step record')} missing here: {gap.why}")

    def missing(self, text: str) -> None:
        """Say what the stream itself lacks."""
        self._lines.append(Line(LineKind.MISSING, self._seq, None, (text,)))

    def note(self, state: PoolState, step: Step) -> None:
        """Take down what one step record says; `state` has applied it."""
        self._seq = step.seq
        made: dict[str, _Made] = {}
        evicted: list[int] = []
        for event in step.events:
            if type(event) not in _TOLD:
                continue  # most are not, and there are hundreds in a step
            match event:
                case RequestAdded():
                    self._request_of[event.sequence] = event.request
                    self._asked[event.request] = (event.prompt_tokens, event.n)
                case Fork():
                    request = self._request_of[event.parent]
                    self._request_of[event.child] = request
                    did = made.setdefault(request, _Made())
                    did.children += 1
                    child = state.sequences.get(event.child)
                    did.shared = max(did.shared, len(child.table) if child else 0)
                case CopyOnWrite():
                    request = self._request_of[event.sequence]
                    made.setdefault(request, _Made()).copies.append(event)
                case Evict():
                    evicted.append(event.block)
                case PrefixLookup() if event.hit and not event.resumed:
                    self._say(LineKind.SHARED, step, *self._hit(event))
                case Preempt():
                    self._say(LineKind.PREEMPTED, step, *self._preempted(event))
                case SequenceScheduled(kind=ScheduledKind.RESUMED):
                    who = RequestName(self._request_of[event.sequence])
                    self._say(LineKind.RESUMED, step, who, " got blocks again and resumes")
                case RequestFinished():
                    self._finished(event, step)
                case RequestRejected():
                    self._rejected(event, step)
        for request, did in made.items():
            self._made(step, request, did)
        if evicted:
            self._evicted(step, evicted)
        self._forget(state, step)

    def _say(self, kind: LineKind, step: Step, *parts: Part) -> None:
        self._lines.append(Line(kind, step.seq, step.step, parts))

    def _left_out(self, kind: LineKind, key: str, step: Step, count: int) -> str | None:
        """None while this is to be kept quiet; else what to add about what was kept quiet before."""
        quiet = self._quiet.get((kind, key))
        if quiet is not None and step.step - quiet.since < QUIET_STEPS:
            quiet.count += count
            return None
        self._quiet[kind, key] = _Quiet(step.step)
        if quiet is None or not quiet.count:
            return ""
        return f" (and {quiet.count:,} more since step {quiet.since:,})"

    def _made(self, step: Step, request: str, did: _Made) -> None:
        who = RequestName(request)
        if did.children:
            more = self._left_out(LineKind.FORKED, request, step, did.children)
            if more is not None:
                text = (
                    f" was forked into {plural(did.children, 'more sequence')} "
                    f"that share {plural(did.shared, 'block')}{more}"
                )
                self._say(LineKind.FORKED, step, who, text)
        if did.copies:
            more = self._left_out(LineKind.COPIED, request, step, len(did.copies))
            if more is not None:
                first = did.copies[0]
                source, target = BlockName(first.source), BlockName(first.target)
                others = len(did.copies) - 1
                also = f", and {plural(others, 'other')}" if others else ""
                self._say(
                    LineKind.COPIED,
                    step,
                    *(who, " wrote to shared ", source, ": copied to ", target, f"{also}{more}"),
                )

    def _evicted(self, step: Step, blocks: list[int]) -> None:
        more = self._left_out(LineKind.EVICTED, "", step, len(blocks))
        if more is None:
            return
        others = f" and {plural(len(blocks) - 1, 'other')}" if len(blocks) > 1 else ""
        text = f"{others} lost cached content to make room{more}"
        self._say(LineKind.EVICTED, step, BlockName(blocks[0]), text)

    def _hit(self, event: PrefixLookup) -> tuple[Part, ...]:
        who = RequestName(self._request_of[event.sequence])
        return who, f" found {event.hit:,} of its {event.queried:,} tokens in the prefix cache"

    def _preempted(self, event: Preempt) -> tuple[Part, ...]:
        victim = RequestName(self._request_of[event.sequence])
        cost = (
            f" was preempted: {plural(event.blocks_released, 'block')} released, "
            f"{plural(event.tokens_lost, 'token')} to compute again"
        )
        if event.victim_of == event.sequence:
            return victim, " needed a block, found none and", cost
        needy = self._request_of[event.victim_of]
        if needy == victim.request:
            return (
                *(victim, f" needed a block; its own sequence {event.sequence:,}"),
                cost,
            )
        return RequestName(needy), " needed a block; ", victim, cost

    def _finished(self, event: RequestFinished, step: Step) -> None:
        prompt_tokens, n = self._asked.get(event.request, (None, None))
        self._ended.append(
            EndedRequest(
                request=event.request,
                seq=step.seq,
                step=step.step,
                outcome=f"finished ({event.reason})",
                prompt_tokens=prompt_tokens,
                n=n,
                output_tokens=event.output_tokens,
                preemptions=event.preemptions,
                recomputed_tokens=event.recomputed_tokens,
                queue_seconds=event.queue_seconds,
                first_token_seconds=event.first_token_seconds,
                duration_seconds=event.duration_seconds,
            )
        )
        text = (
            f" finished ({event.reason}): {plural(event.output_tokens, 'token')} "
            f"in {seconds(event.duration_seconds)}"
        )
        self._say(LineKind.FINISHED, step, RequestName(event.request), text)

    def _rejected(self, event: RequestRejected, step: Step) -> None:
        why = event.why.replace("_", " ")
        self._ended.append(
            EndedRequest(
                event.request, step.seq, step.step, f"rejected ({why})", event.prompt_tokens, None
            )
        )
        name = RequestName(event.request)
        self._say(LineKind.REJECTED, step, name, f" was rejected: {why}")

    def _forget(self, state: PoolState, step: Step) -> None:
        # Only now: the events of the step itself may still name what ended in it.
        if len(self._request_of) > len(state.sequences):
            for sequence in self._request_of.keys() - state.sequences.keys():
                del self._request_of[sequence]
        if len(self._asked) > len(state.requests):
            for request in self._asked.keys() - state.requests.keys():
                del self._asked[request]
                for kind in (LineKind.FORKED, LineKind.COPIED):
                    self._quiet.pop((kind, request), None)


def _last(entries: deque, count: int, upto: int | None) -> list:
    end = len(entries)
    if upto is not None:
        end = bisect_right(entries, upto, key=lambda entry: entry.seq)
    return [entries[i] for i in range(end - 1, max(-1, end - 1 - count), -1)]
