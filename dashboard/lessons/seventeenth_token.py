"""A block is taken when the token comes that needs it, and not before."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Change, Lesson, Moment, Number, Runs, Step, first
from dashboard.lessons.run import Run
from dashboard.readable import plural
from engine.events import PoolState
from engine.events.records import Allocate, AnyEvent, Computed
from engine.events.records import Step as Record

TRACE = "block-table"


@dataclass(frozen=True)
class Facts:
    """`seq` is the record in which a decoding sequence outgrows its first blocks."""

    block_size: int
    request: str
    seq: int
    block: int
    tokens: int
    blocks: int
    taken: int
    taken_after: int
    decoded: int
    decode_blocks: int
    on_full_tables: int


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    growth = _decode_allocations(run)
    record, event, _ = first(growth, "sequence that grows by a block while it decodes")
    before = run.state_at(record.seq - 1).sequences[event.sequence]
    return Facts(
        block_size=run.block_size,
        request=before.request,
        seq=record.seq,
        block=event.block,
        tokens=before.computed,
        blocks=len(before.table),
        taken=_taken(run, record.seq, event.sequence),
        taken_after=_taken(run, record.seq + 1, event.sequence),
        decoded=sum(step.tokens.decode for step in run.steps),
        decode_blocks=len(growth),
        on_full_tables=sum(full for _, _, full in growth),
    )


def _decode_allocations(run: Run) -> list[tuple[Record, Allocate, bool]]:
    """Blocks taken by sequences that have computed tokens, and whether all theirs were full."""
    found = []

    def before(state: PoolState, step: Record, event: AnyEvent) -> None:
        if isinstance(event, Allocate):
            sequence = state.sequences[event.sequence]
            if sequence.computed:
                full = sequence.computed == len(sequence.table) * state.block_size
                found.append((step, event, full))

    for _ in run.walk(before):
        pass
    return found


def _taken(run: Run, seq: int, sequence: int) -> int:
    record = next(step for step in run.steps if step.seq == seq)
    if not any(isinstance(e, Computed) and e.sequence == sequence for e in record.events):
        raise ValueError(f"sequence {sequence} computes nothing in record {seq}")
    return sum(isinstance(e, Allocate) and e.sequence == sequence for e in record.events)


def _next_token(facts: Facts) -> Step:
    return Step(
        title=f"Token {facts.tokens + 1}",
        tell=f"This sequence has {facts.tokens} tokens in {plural(facts.blocks, 'block')} of "
        f"{facts.block_size} slots. Its next token is about to be computed.",
        ask="How many new blocks does it take for that?",
        question=Number(facts.taken, "block"),
        because=f"All {facts.blocks * facts.block_size} slots were full, so token "
        f"{facts.tokens + 1} took block {facts.block}, which was free. It is marked in the pool.",
        at=Moment(TRACE, facts.seq - 1, facts.request),
        shows=Moment(TRACE, facts.seq, facts.request, facts.block),
    )


def _token_after(facts: Facts) -> Step:
    return Step(
        title=f"Token {facts.tokens + 2}",
        tell=f"Block {facts.block} is its newest block, with one slot filled.",
        ask=f"How many blocks does token {facts.tokens + 2} take?",
        question=Number(facts.taken_after, "block"),
        because=f"It fills the next slot of block {facts.block}. No memory is taken ahead of need.",
        at=Moment(TRACE, facts.seq, facts.request, facts.block),
        shows=Moment(TRACE, facts.seq + 1, facts.request, facts.block),
    )


def _whole_run(facts: Facts) -> Step:
    every = facts.decoded / facts.decode_blocks
    return Step(
        title="The whole run",
        tell=f"Two requests decode {facts.decoded} tokens in this run, one at a time each.",
        ask="How many of these tokens took a new block?",
        question=Number(facts.decode_blocks, "token", slack=1),
        because=f"One in {every:.1f}. Each time all blocks of that sequence were full: "
        f"{facts.on_full_tables} of {facts.decode_blocks} times.",
        at=Moment(TRACE, facts.seq + 1),
        shows=Moment(TRACE, facts.seq + 1),
    )


LESSON = Lesson(
    name="seventeenth-token",
    title="The 17th token",
    claim="A sequence takes a block when a token comes that has no slot, and not before.",
    traces=(TRACE,),
    read=read,
    steps=(_next_token, _token_after, _whole_run),
    claims={
        "the token after a full block takes exactly one block": lambda f: (
            f.taken == 1 and f.tokens == f.blocks * f.block_size
        ),
        "the token after that takes none": lambda f: f.taken_after == 0,
        "no decode ever takes a block while it has a free slot": lambda f: (
            f.on_full_tables == f.decode_blocks > 1
        ),
        "about one decoded token in block_size takes a block": lambda f: (
            f.decoded / f.block_size - 2 <= f.decode_blocks <= f.decoded / f.block_size + 2
        ),
    },
    change=Change(
        "With blocks of 4 a block is taken four times as often. Ask for 64 tokens and count.",
        "glasspool serve --block-size 4 --num-gpu-blocks-override 96 --record four.jsonl.zst",
    ),
)
