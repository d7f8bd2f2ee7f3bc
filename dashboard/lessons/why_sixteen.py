"""Small blocks waste little and need long tables; large ones the other way round."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Bars, Change, Lesson, Moment, Number, Runs, Step, Table
from dashboard.lessons.run import Run
from dashboard.source import DEMO_DATA
from engine.events.records import Allocate
from engine.lab import LabSettings, Measured, block_size_sweep, read_attention

SMALL, MIDDLE, LARGE = "block-4", "block-16", "block-128"
TIMES = DEMO_DATA / "attention-cpu.json"


@dataclass(frozen=True)
class Size:
    """One run: `used` is the mean share of taken slots that hold a token, `empty` the mean of a running
    sequence's empty slots, `entries` the most table entries at a time."""

    trace: str
    block_size: int
    used: float
    empty: float
    entries: int
    entries_seq: int
    allocations: int
    running: int


@dataclass(frozen=True)
class Facts:
    """`sweep` has for each block size: utilisation and table entries of the recorded lengths all stored
    at once, from the lab, and the measured time of attention as a multiple, if any."""

    slots: int
    small: Size
    middle: Size
    large: Size
    sweep: tuple[tuple[int, float, int, float | None], ...]
    times: Measured | None


def read(runs: Runs) -> Facts:
    small, middle, large = (_size(name, runs[name]) for name in (SMALL, MIDDLE, LARGE))
    run = runs[MIDDLE]
    times = read_attention(TIMES) if TIMES.is_file() else None
    lengths = [sum(length) for length in run.lengths().values()]
    points = block_size_sweep(lengths, LabSettings(max_model_len=max(lengths)))
    ratios = {p.block_size: times and times.ratio(p.block_size) for p in points}
    return Facts(
        slots=run.header.num_blocks * run.block_size,
        small=small,
        middle=middle,
        large=large,
        sweep=tuple(
            (
                point.block_size,
                point.usage.utilisation,
                point.usage.table_entries,
                found.median if (found := ratios[point.block_size]) else None,
            )
            for point in points
        ),
        times=times,
    )


def _size(trace: str, run: Run) -> Size:
    filled = taken = running = 0
    entries, seq, most = 0, run.keyframe.seq, 0
    for step, state in run.walk():
        filled += state.slots_filled
        taken += state.slots_allocated
        running += state.queues.running
        most = max(most, state.queues.running)
        if state.references > entries:
            entries, seq = state.references, step.seq
    return Size(
        trace=trace,
        block_size=run.block_size,
        used=filled / taken,
        empty=(taken - filled) / running,
        entries=entries,
        entries_seq=seq,
        allocations=sum(1 for _ in run.events(Allocate)),
        running=most,
    )


def _large(facts: Facts) -> Step:
    large, middle = facts.large, facts.middle
    return Step(
        title=f"Blocks of {large.block_size}",
        tell=f"The same requests in the same {facts.slots:,} slots, three times. With blocks of "
        f"{middle.block_size} a running sequence leaves {middle.empty:.1f} slots empty on average. Here "
        f"the blocks have {large.block_size}.",
        ask="How many slots does a running sequence leave empty on average?",
        question=Number(large.empty, "slot", slack=12),
        because=f"{100 - 100 * large.used:.0f} % of all slots that are taken are empty: about half a "
        f"block for each sequence, as before, but of a block of {large.block_size}.",
        at=Moment(LARGE, large.entries_seq),
        shows=Moment(LARGE, large.entries_seq),
        exhibit=_used(facts),
    )


def _used(facts: Facts) -> Bars:
    rows = [
        (f"blocks of {size.block_size}", part, 100 * share)
        for size in (facts.small, facts.middle, facts.large)
        for part, share in ((_TOKENS, size.used), (_EMPTY, 1 - size.used))
    ]
    return Bars("slots taken (%)", tuple(rows), {_TOKENS: "used", _EMPTY: "preempted"})


_TOKENS, _EMPTY = "tokens", "empty"


def _gain(facts: Facts) -> Step:
    small, middle = facts.small, facts.middle
    return Step(
        title=f"Blocks of {small.block_size}",
        tell=f"With blocks of {middle.block_size}, {100 * middle.used:.1f} % of the slots that are "
        f"taken hold a token. Now the blocks have {small.block_size} slots.",
        ask="By how many percentage points is that share larger?",
        question=Number(100 * (small.used - middle.used), unit="points", slack=2, digits=1),
        because=f"{100 * small.used:.1f} %: there is little left to win. {middle.block_size} slots "
        f"waste {middle.empty:.1f} a sequence, {small.block_size} slots {small.empty:.1f}.",
        at=Moment(MIDDLE, middle.entries_seq),
        shows=Moment(SMALL, small.entries_seq),
        exhibit=_used(facts),
    )


def _tables(facts: Facts) -> Step:
    small, middle = facts.small, facts.middle
    rows = tuple(
        (size, f"{100 * used:.1f} %", f"{entries:,}", "–" if ratio is None else f"{ratio:.2f} ×")
        for size, used, entries, ratio in facts.sweep
    )
    measured = " The table has the lab's figures for these lengths"
    if facts.times is not None:
        measured += (
            ", and attention's time in blocks over that in one piece, measured on: "
            f"{facts.times.device}"
        )
    return Step(
        title="What small blocks cost",
        tell=f"The tables of all sequences have {middle.entries} entries at most with blocks of "
        f"{middle.block_size}, and {middle.allocations} blocks are handed out in the run.",
        ask=f"How many blocks are handed out with blocks of {small.block_size}?",
        question=Number(small.allocations, "block", slack=middle.allocations // 3),
        because=f"{small.allocations / middle.allocations:.1f} times as many, and tables of "
        f"{small.entries} entries: work for the scheduler in each step, and scattered reads for "
        f"attention.{measured}.",
        at=Moment(MIDDLE, middle.entries_seq),
        shows=Moment(SMALL, small.entries_seq),
        exhibit=Table(("block size", "utilisation", "table entries", "attention"), rows),
    )


LESSON = Lesson(
    name="why-16",
    title="Why blocks of 16",
    claim="Larger blocks waste memory, smaller ones only lengthen tables: 16 is where both are small.",
    traces=(SMALL, MIDDLE, LARGE),
    read=read,
    steps=(_large, _gain, _tables),
    claims={
        "waste grows with the block size": lambda f: f.small.empty < f.middle.empty < f.large.empty,
        "a sequence wastes less than a block, at every size": lambda f: all(
            size.empty < size.block_size for size in (f.small, f.middle, f.large)
        ),
        "16 uses nearly all that 4 does": lambda f: 0 < f.small.used - f.middle.used < 0.1,
        "128 wastes several times as much as 16": lambda f: f.large.empty > 3 * f.middle.empty,
        "blocks of 4 need about four times the entries": lambda f: (
            3 < f.small.entries / f.middle.entries <= 4.5
        ),
        "and about four times the allocations": lambda f: (
            3 < f.small.allocations / f.middle.allocations <= 4.5
        ),
        "the three runs are in the same memory": lambda f: f.slots == 2048,
    },
    change=Change(
        "The lab sweeps all block sizes for your own lengths, with the measured time of attention "
        "beside them.",
        f"glasspool lab fragmentation --lengths demo_data/{MIDDLE}.jsonl.zst "
        "--block-sizes 1,4,8,16,32,64,128 --attention demo_data/attention-cpu.json",
        compare=(MIDDLE, LARGE),
    ),
)
