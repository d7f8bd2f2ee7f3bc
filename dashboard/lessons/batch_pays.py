"""Paging does not make attention faster: it makes room for a larger batch, and that pays."""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.lessons.lesson import (
    Bars,
    Change,
    Choice,
    Lesson,
    LessonError,
    Moment,
    Number,
    Runs,
    Step,
)
from dashboard.lessons.run import Run
from dashboard.readable import plural

NAIVE, PAGED = "naive-reservation", "block-16"
ENOUGH = 8
"""Steps from which on their durations count."""
ALIKE = 0.25
"""Two durations are about the same that differ by no more than this share."""


@dataclass(frozen=True)
class Timed:
    """One run. `seconds` has for each batch size the lower quartile of the model's time in steps that
    decode so many sequences and nothing else; `seqs` one such record each.

    A quartile, as other work of the machine only ever makes a step longer.
    """

    block_size: int
    batch: int
    seconds: Mapping[int, float]
    seqs: Mapping[int, int]
    tokens: int
    elapsed: float

    @property
    def rate(self) -> float:
        """Tokens of output a second."""
        return self.tokens / self.elapsed


@dataclass(frozen=True)
class Facts:
    naive: Timed
    paged: Timed

    @property
    def common(self) -> int:
        """The largest batch of which both runs have enough steps."""
        return max(set(self.naive.seconds) & set(self.paged.seconds))

    @property
    def ratio(self) -> float:
        """Time of a paged step over that of one without, at the same batch."""
        return self.paged.seconds[self.common] / self.naive.seconds[self.common]

    @property
    def largest(self) -> int:
        return max(self.paged.seconds)

    @property
    def longer(self) -> float:
        """How many times as long a step of the largest batch takes."""
        return self.paged.seconds[self.largest] / self.paged.seconds[self.common]

    @property
    def gain(self) -> float:
        return self.paged.rate / self.naive.rate


def read(runs: Runs) -> Facts:
    facts = Facts(_timed(runs[NAIVE]), _timed(runs[PAGED]))
    if not set(facts.naive.seconds) & set(facts.paged.seconds):
        raise LessonError("these traces have no batch size in common")
    return facts


def _timed(run: Run) -> Timed:
    by_batch: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for step in run.steps:
        tokens = step.tokens
        if tokens.decode and not tokens.prefill and not tokens.recompute:
            by_batch[tokens.decode].append((step.durations.model, step.seq))
    enough = {batch: steps for batch, steps in by_batch.items() if len(steps) >= ENOUGH}
    first, last = run.steps[0], run.steps[-1]
    spent = last.durations
    return Timed(
        block_size=run.block_size,
        batch=max(by_batch),
        seconds={
            batch: statistics.quantiles([seconds for seconds, _ in steps], n=4)[0]
            for batch, steps in enough.items()
        },
        seqs={batch: steps[len(steps) // 2][1] for batch, steps in enough.items()},
        tokens=sum(output for _, output in run.lengths().values()) + len(run.lengths()),
        elapsed=last.time - first.time + spent.schedule + spent.model + spent.sample,
    )


def _faster(facts: Facts) -> Step:
    common, naive, paged = facts.common, facts.naive, facts.paged
    margin = f"{100 * ALIKE:.0f} %"
    options = (
        f"Blocks of {paged.block_size} are faster by more than {margin}",
        f"They differ by at most {margin}",
        f"One piece is faster by more than {margin}",
    )
    right = 0 if facts.ratio < 1 - ALIKE else 2 if facts.ratio > 1 + ALIKE else 1
    return Step(
        title="The same batch",
        tell=f"Two runs of the same requests: each sequence in one piece of {naive.block_size} slots, "
        f"or in blocks of {paged.block_size}. Take steps in which both decode {common} sequences.",
        ask="Which step is faster?",
        question=Choice(options, right),
        because=f"{1000 * naive.seconds[common]:.0f} ms in one piece, "
        f"{1000 * paged.seconds[common]:.0f} ms in blocks, the lower quartiles on one CPU. "
        "Attention reads the same keys and values; a table between it and them saves no reading, and "
        "costs a look-up.",
        at=Moment(NAIVE, naive.seqs[common]),
        shows=Moment(PAGED, paged.seqs[common]),
    )


def _batch(facts: Facts) -> Step:
    common, largest, paged = facts.common, facts.largest, facts.paged
    work = largest / common
    shown = sorted({min(paged.seconds), common, largest})
    rows = [(plural(batch, "sequence"), _MS, 1000 * paged.seconds[batch]) for batch in shown]
    return Step(
        title="A larger batch",
        tell=f"In blocks, {paged.batch} sequences fit at once, in one piece {facts.naive.batch}. A step "
        f"with {largest} gives {work:.1f} times the tokens of a step with {common}.",
        ask="How many times as long does it take?",
        question=Number(facts.longer, unit="times", slack=0.3, digits=1),
        because=f"{1000 * paged.seconds[largest]:.0f} ms for {largest} tokens in place of "
        f"{1000 * paged.seconds[common]:.0f} ms for {common}: weights are read once for all sequences of "
        "a batch.",
        at=Moment(PAGED, paged.seqs[common]),
        shows=Moment(PAGED, paged.seqs[largest]),
        exhibit=Bars("model time of a step (ms)", tuple(rows), {_MS: "used"}),
    )


_MS = "lower quartile"


def _rate(facts: Facts) -> Step:
    naive, paged = facts.naive, facts.paged
    return Step(
        title="What it pays",
        tell=f"Both runs draw {paged.tokens:,} tokens in all. In one piece: {naive.rate:.1f} tokens a "
        "second over the whole run.",
        ask="How many times as many does the run in blocks reach?",
        question=Number(facts.gain, unit="times", slack=0.3, digits=1),
        because=f"{paged.rate:.1f} tokens a second, from the same model on the same machine. The gain is "
        "the batch's, and the batch is there because no memory is reserved.",
        at=Moment(NAIVE, naive.seqs[facts.common]),
        shows=Moment(PAGED, paged.seqs[facts.largest]),
        exhibit=Bars(
            "tokens a second",
            ((_ONE, _RATE, naive.rate), (_BLOCKS, _RATE, paged.rate)),
            {_RATE: "used"},
        ),
    )


_ONE, _BLOCKS, _RATE = "one piece", "blocks", "rate"

LESSON = Lesson(
    name="batch-pays",
    title="Not a faster attention",
    claim="Paging does not make a step faster. It makes room for a larger batch, and that pays.",
    traces=(NAIVE, PAGED),
    read=read,
    steps=(_faster, _batch, _rate),
    claims={
        "at the same batch a paged step is no faster than by chance": lambda f: (
            f.ratio > 1 - 2 * ALIKE
        ),
        "blocks let the batch grow": lambda f: f.paged.batch >= 2 * f.naive.batch,
        "a larger batch costs less than its tokens": lambda f: f.longer < f.largest / f.common,
        "so the whole run draws tokens faster": lambda f: f.gain > 1.1,
        "both runs draw the same number of tokens": lambda f: f.naive.tokens == f.paged.tokens,
    },
    change=Change(
        "Measure attention itself, in blocks and in one piece, on your machine.",
        "glasspool bench attention",
        compare=(NAIVE, PAGED),
    ),
)
