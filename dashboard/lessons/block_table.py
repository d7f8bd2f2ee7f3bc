"""Logical blocks in order, physical ones anywhere: a table between them, as in an operating system."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Change, Lesson, Moment, Number, Runs, Step, Table, first
from dashboard.readable import size

TRACE = "block-table"


@dataclass(frozen=True)
class Facts:
    """At `seq` two sequences are longest. `texts[i]` is what block `table[i]` holds."""

    seq: int
    request: str
    block_size: int
    table: tuple[int, ...]
    other: tuple[int, ...]
    fills: tuple[int, ...]
    texts: tuple[str, ...]
    computed: int
    bytes_per_block: int
    bytes_per_token: int

    @property
    def neighbours(self) -> int:
        """Steps along the table that lead to the next physical block."""
        return sum(b == a + 1 for a, b in zip(self.table, self.table[1:], strict=False))

    @property
    def position(self) -> int:
        """A token in the middle of the sequence's last but one block."""
        return (len(self.table) - 2) * self.block_size + self.block_size // 2

    @property
    def slot(self) -> int:
        block, offset = divmod(self.position, self.block_size)
        return self.table[block] * self.block_size + offset


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    both = [step.seq for step, state in run.walk() if len(state.sequences) == 2]
    seq = first(reversed(both), "moment with two sequences")
    state = run.state_at(seq)
    one, two = sorted(state.sequences.values(), key=lambda sequence: sequence.sequence)
    return Facts(
        seq=seq,
        request=one.request,
        block_size=run.block_size,
        table=tuple(one.table),
        other=tuple(two.table),
        fills=tuple(state.filled[block] for block in one.table),
        texts=tuple(state.block_text(block) or "" for block in one.table),
        computed=one.computed,
        bytes_per_block=run.header.bytes_per_block,
        bytes_per_token=run.header.bytes_per_block // run.block_size,
    )


def _scattered(facts: Facts) -> Step:
    return Step(
        title="Where a sequence lies",
        tell=f"Request {facts.request} is outlined: one sequence of {facts.computed} tokens in "
        f"{len(facts.table)} blocks. A second request decodes beside it.",
        ask=f"Of the {len(facts.table) - 1} steps from one of its blocks to the next, how many lead "
        "to the neighbour in memory?",
        question=Number(facts.neighbours, "step"),
        because="Both sequences grow at the same time and take turns at the free blocks, so the "
        "blocks of one lie between those of the other. The table keeps the order.",
        at=Moment(TRACE, facts.seq, facts.request),
        shows=Moment(TRACE, facts.seq, facts.request),
        exhibit=_table(facts),
    )


def _table(facts: Facts) -> Table:
    rows = tuple(
        (index, block, fill, text.replace("\n", "⏎"))
        for index, (block, fill, text) in enumerate(
            zip(facts.table, facts.fills, facts.texts, strict=True)
        )
    )
    return Table(("logical", "physical", "filled", "text"), rows)


def _translate(facts: Facts) -> Step:
    logical, offset = divmod(facts.position, facts.block_size)
    block = facts.table[logical]
    return Step(
        title="Find a token",
        tell=f"Its block table is {', '.join(map(str, facts.table))}. Blocks have "
        f"{facts.block_size} slots. A slot's number is block × {facts.block_size} + offset.",
        ask=f"In which slot is the KV of the token at position {facts.position}, counted from 0?",
        question=Number(facts.slot, ""),
        because=f"{facts.position} = {logical} × {facts.block_size} + {offset}: logical block "
        f"{logical} is physical block {block}, and {block} × {facts.block_size} + {offset} = "
        f"{facts.slot}. The attention kernel does this for every token it reads.",
        at=Moment(TRACE, facts.seq, facts.request),
        shows=Moment(TRACE, facts.seq, facts.request, block),
    )


def _price(facts: Facts) -> Step:
    return Step(
        title="What the table costs",
        tell=f"A table entry is one 4-byte number. One token's KV of this model is "
        f"{size(facts.bytes_per_token)}: keys and values of all layers.",
        ask="How many KiB of KV does one table entry stand for?",
        question=Number(
            facts.bytes_per_block / 1024, unit="KiB", slack=facts.bytes_per_block / 51200
        ),
        because=f"{facts.block_size} slots × {size(facts.bytes_per_token)}. The whole table of "
        f"{len(facts.table)} entries is {4 * len(facts.table)} bytes for "
        f"{size(len(facts.table) * facts.bytes_per_block)}.",
        at=Moment(TRACE, facts.seq, facts.request),
        shows=Moment(TRACE, facts.seq, facts.request),
    )


LESSON = Lesson(
    name="block-table",
    title="The block table",
    claim="A sequence is in order for the model and scattered in memory; a small table joins both.",
    traces=(TRACE,),
    read=read,
    steps=(_scattered, _translate, _price),
    claims={
        "the sequence does not lie in one piece": lambda f: f.neighbours < len(f.table) - 1,
        "no block is in both tables": lambda f: not set(f.table) & set(f.other),
        "the blocks of the other lie between its own": lambda f: any(
            min(f.table) < block < max(f.table) for block in f.other
        ),
        "all blocks but the last are full": lambda f: (
            set(f.fills[:-1]) == {f.block_size} and 0 < f.fills[-1] <= f.block_size
        ),
        "the table covers the computed tokens": lambda f: sum(f.fills) == f.computed,
        "a table entry is tiny beside its block": lambda f: f.bytes_per_block > 1000 * 4,
    },
    change=Change(
        "With one request alone the blocks lie in order, until others have come and gone. Send one, "
        "then three at once, and look at the tables on the page Requests.",
        "glasspool serve --num-gpu-blocks-override 24 --record-text --record tables.jsonl.zst",
    ),
)
