"""Reserved, internal and external: three ways in which memory that is taken or free is of no use."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Bars, Change, Lesson, Lines, Moment, Number, Runs, Step
from dashboard.lessons.run import Run
from engine.events.records import SequenceStatus
from engine.lab import DynamicRun, LabSettings, lab_requests, run_allocator
from engine.lab.allocators import Kind
from engine.lab.moment import Use

NAIVE, PAGED = "naive-reservation", "block-16"
ROUNDS = 20
"""How often the recorded requests come in the simulation."""
EVERY = 6.0
"""Steps between two of them."""


@dataclass(frozen=True)
class Best:
    """The moment of a run at which most tokens are stored: slots by what they are for.

    reserved: the sequence will fill them later. never: it will not.
    """

    seq: int
    running: int
    stored: int
    reserved: int
    never: int

    @property
    def taken(self) -> int:
        return self.stored + self.reserved + self.never


@dataclass(frozen=True)
class Facts:
    """`empty` is the mean of a running sequence's empty slots, over all steps of the paged run, and
    `most_empty` the most that one ever has."""

    max_model_len: int
    block_size: int
    slots: int
    requests: int
    mean_length: float
    naive: Best
    paged: Best
    naive_running: int
    paged_running: int
    naive_curve: tuple[int, ...]
    paged_curve: tuple[int, ...]
    empty: float
    most_empty: int
    exact: DynamicRun
    blocks: DynamicRun


def read(runs: Runs) -> Facts:
    naive, paged = runs[NAIVE], runs[PAGED]
    lengths = paged.lengths()
    slots = paged.header.num_blocks * paged.block_size
    longest = int(naive.block_size)
    settings = LabSettings(max_model_len=longest, block_size=paged.block_size)
    requests = lab_requests(list(lengths.values()) * ROUNDS, EVERY, seed=0)
    gaps = _empty_slots(paged)
    curves = [tuple(state.queues.running for _, state in run.walk()) for run in (naive, paged)]
    return Facts(
        max_model_len=longest,
        block_size=paged.block_size,
        slots=slots,
        requests=len(lengths),
        mean_length=sum(map(sum, lengths.values())) / len(lengths),
        naive=_best(naive),
        paged=_best(paged),
        naive_running=max(curves[0]),
        paged_running=max(curves[1]),
        naive_curve=curves[0],
        paged_curve=curves[1],
        empty=sum(gaps) / len(gaps),
        most_empty=max(gaps),
        exact=run_allocator(Kind.EXACT, requests, slots, settings),
        blocks=run_allocator(Kind.PAGED, requests, slots, settings),
    )


def _best(run: Run) -> Best:
    lengths = run.lengths()
    most, seq = max((state.slots_filled, -step.seq) for step, state in run.walk())
    state = run.state_at(-seq)
    reserved = taken = running = 0
    for sequence in state.sequences.values():
        room = len(sequence.table) * run.block_size
        running += sequence.status is SequenceStatus.RUNNING
        taken += room
        final = sum(lengths[sequence.request])
        reserved += min(room, final) - sequence.computed if room else 0
    return Best(-seq, running, most, reserved, taken - most - reserved)


def _empty_slots(run: Run) -> list[int]:
    """Of each running sequence, after each step."""
    return [
        len(sequence.table) * run.block_size - sequence.computed
        for _, state in run.walk()
        for sequence in state.sequences.values()
        if sequence.table
    ]


_STORED, _LATER, _NEVER = "tokens", "needed later", "never needed"
_PAGED_ROW, _NAIVE_ROW = "blocks of 16", "reservations"


def _reserved(facts: Facts) -> Step:
    best = facts.naive
    rows = [
        (row, part, float(slots))
        for row, at in ((_NAIVE_ROW, best), (_PAGED_ROW, facts.paged))
        for part, slots in ((_STORED, at.stored), (_LATER, at.reserved), (_NEVER, at.never))
        if slots
    ]
    return Step(
        title="Reserved",
        tell=f"Before paging, each sequence got one piece for the longest it may become. This run does "
        f"that: {facts.slots:,} slots, {facts.max_model_len} for each of {best.running} sequences. You "
        "see the moment at which it stores most.",
        ask="What percentage of the slots that are taken holds a token?",
        question=Number(100 * best.stored / best.taken, unit="%", slack=8),
        because=f"{best.stored} of {best.taken:,} slots. {best.reserved} more will be filled later, and "
        f"{best.never:,} never: nobody knows beforehand how long an answer gets. With blocks the best "
        f"moment has {facts.paged.stored:,} tokens in {facts.paged.taken:,} slots.",
        at=Moment(NAIVE, best.seq),
        shows=Moment(NAIVE, best.seq),
        exhibit=Bars(
            "slots taken",
            tuple(rows),
            {_STORED: "used", _LATER: "cached", _NEVER: "preempted"},
        ),
    )


def _together(facts: Facts) -> Step:
    rows = [
        (name, float(step), float(running))
        for name, curve in (
            (_NAIVE_ROW, facts.naive_curve),
            (_PAGED_ROW, facts.paged_curve),
        )
        for step, running in enumerate(curve)
    ]
    return Step(
        title="What the reservations cost",
        tell=f"{facts.requests} requests wait, of {facts.mean_length:.0f} tokens on average in the end. "
        f"With reservations {facts.naive_running} of them run at once.",
        ask=f"How many run at once in the same {facts.slots:,} slots cut into blocks of "
        f"{facts.block_size}?",
        question=Number(facts.paged_running, "request", slack=1),
        because=f"All that there are, and the run is over after {len(facts.paged_curve)} steps in "
        f"place of {len(facts.naive_curve)}.",
        at=Moment(NAIVE, facts.naive.seq),
        shows=Moment(PAGED, facts.paged.seq),
        exhibit=Lines(
            "step", "running", tuple(rows), {_NAIVE_ROW: "preempted", _PAGED_ROW: "used"}
        ),
    )


def _internal(facts: Facts) -> Step:
    return Step(
        title="Internal",
        tell="Blocks waste too: the last block of a sequence is not full. Choose the colour Fill above "
        "the pool to see it.",
        ask="How many slots does a running sequence leave empty, on average over the run?",
        question=Number(facts.empty, "slot", slack=1.5, digits=1),
        because=f"About half a block, and never more than {facts.most_empty}: always less than one "
        f"block of {facts.block_size}, however long the sequence is.",
        at=Moment(PAGED, facts.paged.seq),
        shows=Moment(PAGED, facts.paged.seq),
    )


def _external(facts: Facts) -> Step:
    exact, blocks = facts.exact, facts.blocks
    rows = [
        (row, use.value, 100 * run.mean.share(use))
        for row, run in (("one piece", exact), (_PAGED_ROW, blocks))
        for use in Use
        if run.mean.share(use) > 0
    ]
    return Step(
        title="External",
        tell="Free memory is of no use if its holes are too small. A paged engine never has that, so "
        "this one is simulated: the lab lets the recorded requests come and go "
        f"{ROUNDS} times, and gives each one piece of exactly its final length.",
        ask=f"Of {exact.requests} requests, how many are held up although enough slots are free in sum?",
        question=Number(exact.refused_with_free, "request", slack=exact.requests // 12),
        source="The simulation says",
        because=f"{100 * exact.mean.share(Use.EXTERNAL):.0f} % of the memory lies in such holes on "
        f"average. With blocks of {facts.block_size} it is {blocks.refused_with_free}: every free "
        "block is as good as any other.",
        at=Moment(PAGED, facts.paged.seq),
        shows=Moment(PAGED, facts.paged.seq),
        exhibit=Bars(
            "share of the memory (%), simulated",
            tuple(rows),
            {
                Use.STORED.value: "used",
                Use.RESERVED.value: "cached",
                Use.INTERNAL.value: "shared",
                Use.EXTERNAL.value: "preempted",
                Use.USABLE.value: "free",
            },
        ),
    )


LESSON = Lesson(
    name="three-wastes",
    title="The three wastes",
    claim="Reservations and holes waste most of a memory; blocks waste part of one block each.",
    traces=(NAIVE, PAGED),
    read=read,
    steps=(_reserved, _together, _internal, _external),
    claims={
        "a reservation is mostly empty, even at its best": lambda f: (
            f.naive.stored < f.naive.taken / 2
        ),
        "blocks are mostly full at their best": lambda f: f.paged.stored > 0.85 * f.paged.taken,
        "blocks let more requests run at once": lambda f: f.paged_running >= 2 * f.naive_running,
        "a sequence never leaves a whole block empty": lambda f: f.most_empty < f.block_size,
        "about half a block is empty on average": lambda f: (
            f.block_size / 4 < f.empty < 3 * f.block_size / 4
        ),
        "holes hold requests up where each needs one piece, and never with blocks": lambda f: (
            f.exact.refused_with_free > 0 == f.blocks.refused_with_free
        ),
        "blocks have no external waste": lambda f: f.blocks.mean.share(Use.EXTERNAL) == 0,
    },
    change=Change(
        "The lab compares five allocators on these lengths, or on your own: take any recorded run.",
        f"glasspool lab fragmentation --lengths demo_data/{PAGED}.jsonl.zst --max-model-len 512 "
        "--memory 2048",
        compare=(NAIVE, PAGED),
    ),
)
