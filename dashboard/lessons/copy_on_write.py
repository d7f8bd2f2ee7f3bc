"""The first write to a shared block copies it; the last owner writes in place."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Change, Choice, Lesson, Moment, Number, Runs, Step, first
from engine.events import PoolState
from engine.events.records import AnyEvent, Computed, CopyOnWrite
from engine.events.records import Step as Record

TRACE = "parallel-sampling"


@dataclass(frozen=True)
class Facts:
    """`seq` is the record with the first copy; `fills[i]` are the source's slots at each copy."""

    seq: int
    request: str
    block_size: int
    sequences: int
    source: int
    references: int
    fill: int
    shared_before: int
    copies: int
    copied: tuple[int, ...]
    writers: tuple[int, ...]
    fills: tuple[int, ...]

    @property
    def in_place(self) -> tuple[int, ...]:
        """Sequences that wrote the block without a copy."""
        return tuple(number for number in self.writers if number not in self.copied)


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    step, copy = first(run.events(CopyOnWrite), "copy-on-write")
    state = run.state_at(step.seq - 1)
    owners = state.owners[copy.source]
    here = [e for e in step.events if isinstance(e, CopyOnWrite) and e.source == copy.source]
    fills: list[int] = []

    def before(state: PoolState, step: Record, event: AnyEvent) -> None:
        if isinstance(event, CopyOnWrite):
            fills.append(state.filled[event.source])

    for _ in run.walk(before):
        pass
    return Facts(
        seq=step.seq,
        request=state.sequences[copy.sequence].request,
        block_size=run.block_size,
        sequences=len(state.sequences),
        source=copy.source,
        references=len(owners),
        fill=state.filled[copy.source],
        shared_before=state.shared_blocks,
        copies=len(here),
        copied=tuple(event.sequence for event in here),
        writers=tuple(
            e.sequence for e in step.events if isinstance(e, Computed) and e.sequence in owners
        ),
        fills=tuple(fills),
    )


def _how_many(facts: Facts) -> Step:
    return Step(
        title="The first token of each",
        tell=f"{facts.sequences} sequences share all blocks of their prompt. Its last block, "
        f"{facts.source}, has {facts.fill} of {facts.block_size} slots filled. Each sequence has drawn "
        "a token of its own, and its KV belongs in the next slot of that block.",
        ask="How many copies of the block are made when all of them write?",
        question=Number(facts.copies, unit="copies"),
        because=f"A write to a block with a ref count above 1 copies it first. After {facts.copies} "
        "copies the count is 1, and the last owner writes where the block is.",
        at=Moment(TRACE, facts.seq - 1, facts.request, facts.source),
        shows=Moment(TRACE, facts.seq, facts.request, facts.source),
    )


def _who(facts: Facts) -> Step:
    names = tuple(f"sequence {number}" for number in facts.writers)
    return Step(
        title="Who keeps the block",
        tell=f"The copies are marked in the pool. Block {facts.source} is still in use, by one.",
        ask="Which of them keeps it?",
        question=Choice(names, facts.writers.index(facts.in_place[0])),
        because=f"They are asked in order; when {names[facts.writers.index(facts.in_place[0])]} came, "
        "nobody else pointed at it. So n owners cost n − 1 copies.",
        at=Moment(TRACE, facts.seq, facts.request, facts.source),
        shows=Moment(TRACE, facts.seq, facts.request, facts.source),
    )


def _full_blocks(facts: Facts) -> Step:
    full = sum(fill == facts.block_size for fill in facts.fills)
    return Step(
        title="Full blocks",
        tell=f"Before the first write {facts.shared_before} blocks were shared, all but one of them "
        "full.",
        ask="How many full blocks are copied in the whole run?",
        question=Number(full, "block"),
        because=f"Nothing is ever written to a full block. {len(facts.fills)} copies of one partial "
        f"block of {facts.fill} tokens are all that four answers cost.",
        at=Moment(TRACE, facts.seq, facts.request),
        shows=Moment(TRACE, facts.seq + 1, facts.request),
    )


LESSON = Lesson(
    name="copy-on-write",
    title="Copy-on-write",
    claim="A shared block is copied at the first divergence: once for each owner but the last.",
    traces=(TRACE,),
    read=read,
    steps=(_how_many, _who, _full_blocks),
    claims={
        "n owners make n - 1 copies": lambda f: f.copies == f.references - 1 == f.sequences - 1,
        "all owners write in that step": lambda f: len(f.writers) == f.references,
        "exactly one writes in place, and it is the last": lambda f: f.in_place == (f.writers[-1],),
        "only partial blocks are copied": lambda f: (
            len(f.fills) > 0 and all(0 < fill < f.block_size for fill in f.fills)
        ),
        "the source was shared by all": lambda f: f.references == f.sequences == 4,
    },
    change=Change(
        "With a prompt that ends exactly at a block's edge nothing is copied: choose --block-size so "
        "that it divides the prompt's length (here 105 tokens, so 15 or 21).",
        "glasspool serve --block-size 15 --num-gpu-blocks-override 64",
    ),
)
