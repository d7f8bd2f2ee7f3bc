"""Beams fork from the best and are pruned; forks cost nothing until they write."""

from dataclasses import dataclass

from dashboard.lessons.lesson import (
    Change,
    Lesson,
    LessonError,
    Lines,
    Moment,
    Number,
    Runs,
    Step,
    first,
)
from engine.events import PoolState
from engine.events.records import (
    AnyEvent,
    FinishReason,
    Fork,
    Release,
    ReleaseWhy,
    RequestAdded,
    SequenceFinished,
)
from engine.events.records import Step as Record

TRACE = "beam-search"


@dataclass(frozen=True)
class Facts:
    """`seq` is a record in which beams are pruned; curves are by step while the request runs."""

    request: str
    beams: int
    seq: int
    pruned_here: int
    forked_here: int
    freed_here: int
    forks: int
    pruned: int
    released_with: int
    alive: tuple[int, ...]
    active: tuple[int, ...]
    entries: tuple[int, ...]
    peak_seq: int


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    _, asked = first(run.events(RequestAdded), "request")
    pruned = [
        (step, event)
        for step, event in run.events(SequenceFinished)
        if event.reason is FinishReason.PRUNED
    ]
    # The first prunings follow directly on the prompt; one later has tables to look at.
    late = [step for step, _ in pruned if _frees(step) and step.step > 2]
    if not late:
        raise LessonError("this trace has no beam that is pruned and frees a block")
    seq = max(late, key=_frees).seq
    released: set[tuple[int, int]] = set()
    alive, active, entries, seqs = [], [], [], []

    def before(state: PoolState, step: Record, event: AnyEvent) -> None:
        if isinstance(event, Release) and event.why is ReleaseWhy.PRUNED:
            released.add((step.seq, event.sequence))

    for step, state in run.walk(before):
        if len(state.sequences) > 1:
            alive.append(len(state.sequences))
            active.append(state.active_blocks)
            entries.append(state.references)
            seqs.append(step.seq)
    here = next(step for step in run.steps if step.seq == seq)
    return Facts(
        request=asked.request,
        beams=asked.n,
        seq=seq,
        pruned_here=_count(here, SequenceFinished),
        forked_here=_count(here, Fork),
        freed_here=_frees(here),
        forks=sum(1 for _ in run.events(Fork)),
        pruned=len(pruned),
        released_with=sum((step.seq, event.sequence) in released for step, event in pruned),
        alive=tuple(alive),
        active=tuple(active),
        entries=tuple(entries),
        peak_seq=seqs[active.index(max(active))],
    )


def _frees(step: Record) -> int:
    """Blocks that pruning leaves without an owner."""
    return sum(
        isinstance(e, Release) and e.why is ReleaseWhy.PRUNED and e.left == 0 for e in step.events
    )


def _count(step: Record, kind: type) -> int:
    return sum(isinstance(event, kind) for event in step.events)


def _freed(facts: Facts) -> Step:
    return Step(
        title="Overtaken",
        tell=f"A search with {facts.beams} beams. In the next step {facts.forked_here} forks are made of "
        f"the best ones, and {facts.pruned_here} beams are pruned: those forks have overtaken them.",
        ask="How many blocks are left without an owner in the same step?",
        question=Number(facts.freed_here, "block"),
        because="Only the blocks that no other beam shares. A common beginning stays, as others still "
        "point at it.",
        at=Moment(TRACE, facts.seq - 1, facts.request),
        shows=Moment(TRACE, facts.seq, facts.request),
    )


def _how_often(facts: Facts) -> Step:
    return Step(
        title="The whole search",
        tell=f"There are never more than {max(facts.alive)} beams at the end of a step. "
        f"In the whole search {facts.forks} forks are made.",
        ask="How many beams are pruned?",
        question=Number(facts.pruned, "beam", slack=2),
        because=f"{facts.forks} forks and the first sequence make {facts.forks + 1} beams; "
        f"{facts.forks + 1 - facts.pruned} live to the end. Each one that was pruned gave its blocks "
        "back in the same step.",
        at=Moment(TRACE, facts.seq, facts.request),
        shows=Moment(TRACE, facts.peak_seq, facts.request),
    )


_ENTRIES, _BLOCKS = "table entries", "blocks"


def _shared(facts: Facts) -> Step:
    peak = facts.active.index(max(facts.active))
    rows = [
        (name, float(step), float(value))
        for name, curve in ((_ENTRIES, facts.entries), (_BLOCKS, facts.active))
        for step, value in enumerate(curve)
    ]
    return Step(
        title="What is stored",
        tell=f"At its largest, the tables of all beams have {facts.entries[peak]} entries. Without "
        "sharing each would be a block.",
        ask="How many blocks do the beams hold then?",
        question=Number(facts.active[peak], "block", slack=1),
        because=f"{100 - 100 * facts.active[peak] / facts.entries[peak]:.0f} % less: beams have most of "
        "their past in common, as each is a fork of a recent winner.",
        at=Moment(TRACE, facts.peak_seq, facts.request),
        shows=Moment(TRACE, facts.peak_seq, facts.request),
        exhibit=Lines(
            "step of the search", "number", tuple(rows), {_ENTRIES: "used", _BLOCKS: "shared"}
        ),
    )


LESSON = Lesson(
    name="beams",
    title="Beams",
    claim="Beams fork for nothing and share their past; who is overtaken frees its blocks at once.",
    traces=(TRACE,),
    read=read,
    steps=(_freed, _how_often, _shared),
    claims={
        "every pruned beam gives its blocks back in the same step": lambda f: (
            f.released_with == f.pruned > 0
        ),
        "never more beams than were asked for": lambda f: max(f.alive) == f.beams,
        "beams that were forked and not pruned are those that end": lambda f: (
            f.forks + 1 - f.pruned == f.beams
        ),
        "pruning frees a block": lambda f: f.freed_here > 0 < f.pruned_here,
        "beams store less than their tables name": lambda f: max(f.active) < 0.8 * max(f.entries),
    },
    change=Change(
        "Eight beams in place of four: see how little the pool grows. Send a completion with "
        "use_beam_search and n = 8.",
        "glasspool serve --num-gpu-blocks-override 48 --record-text --record beams.jsonl.zst",
    ),
)
