"""The cost of a step, fitted to a recorded run.

    seconds  ≈  step + prefill · (tokens in rows of several) + decode · (rows of one) + key · (keys)

by least squares, with no part below 0. A step that took more than three times what the first fit
says (a compilation, a machine that was busy with something else) is left out of the second one.
"""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from engine.core.config import ConfigError
from engine.core.runner import StepCost
from engine.events.records import (
    Computed,
    Fork,
    Gap,
    Keyframe,
    Preempt,
    PrefixLookup,
    RequestAdded,
    SequenceFinished,
    Step,
)
from engine.events.trace import TraceReader

FEWEST_STEPS = 20
MUCH_LONGER = 3.0

Sample = tuple[int, int, int, float]
"""Of one step: prefill tokens, decoding rows, keys read, seconds."""


class Fit(msgspec.Struct, frozen=True):
    """A cost, and how well it tells the steps that it was fitted to.

    r2: share of the variance that it explains. median_error: of |said - took| / took. between: seconds
    from one step's end to the next one's start while there was work (median); they are in `cost.step`.
    """

    cost: StepCost
    steps: int
    left_out: int
    r2: float
    median_error: float
    between: float

    def __str__(self) -> str:
        left = f", {self.left_out} much longer ones left out" if self.left_out else ""
        return (
            f"fitted on {self.steps:,} steps{left}: R² {self.r2:.3f}, "
            f"median error {100 * self.median_error:.1f} % of a step"
        )


def fit_trace(path: Path) -> Fit:
    """Fit a trace. Raises ConfigError where it has too little, TraceError where it can't be read."""
    with TraceReader(path) as reader:
        if "durations" not in reader.header.knows:
            raise ConfigError(f"{path} does not know how long steps took: give --cost in numbers")
        samples, gaps = _samples(reader)
    if len(samples) < FEWEST_STEPS:
        raise ConfigError(
            f"{path} has {len(samples)} steps that ran a model, too few to fit a cost "
            f"(at least {FEWEST_STEPS}): record a longer run, or give --cost in numbers"
        )
    between = max(0.0, statistics.median(gaps)) if gaps else 0.0
    return fit_samples(samples, between)


def fit_samples(samples: Sequence[Sample], between: float = 0.0) -> Fit:
    """Least squares, twice. Raises ConfigError where steps took no time."""
    weights = _least_squares(samples)
    kept = [sample for sample in samples if sample[3] <= MUCH_LONGER * _said(weights, sample)]
    if len(kept) < len(samples):
        weights = _least_squares(kept)
    if not any(weights):
        raise ConfigError("the recorded steps took no time: give --cost in numbers")
    errors = [_said(weights, sample) - sample[3] for sample in kept]
    mean = statistics.fmean(sample[3] for sample in kept)
    spread = sum((sample[3] - mean) ** 2 for sample in kept)
    unexplained = sum(error * error for error in errors)
    step, prefill, decode, key = weights
    return Fit(
        cost=StepCost(step + between, prefill, decode, key),
        steps=len(kept),
        left_out=len(samples) - len(kept),
        r2=1 - unexplained / spread if spread else 1.0,
        median_error=statistics.median(
            abs(error) / sample[3] for error, sample in zip(errors, kept, strict=True) if sample[3]
        ),
        between=between,
    )


def _samples(records: Iterable[Keyframe | Step | Gap]) -> tuple[list[Sample], list[float]]:
    """Of each step that ran a model; and the seconds between steps that followed at once."""
    samples: list[Sample] = []
    gaps: list[float] = []
    computed: dict[int, int] = {}
    fresh, ended = True, None
    for record in records:
        match record:
            case Keyframe() if fresh:
                computed = {row.sequence: row.computed for row in record.sequences}
                fresh = False
            case Gap():
                fresh, ended = True, None
            case Step():
                if ended is not None:
                    gaps.append(record.time - ended)
                prefill, decode, keys = _work(record, computed)
                spent = record.durations
                seconds = spent.schedule + spent.model + spent.sample
                if prefill or decode:
                    samples.append((prefill, decode, keys, seconds))
                left = record.queues
                busy = left.waiting + left.running + left.preempted > 0 and (prefill or decode)
                ended = record.time + seconds if busy else None
    return samples, gaps


def _work(step: Step, computed: dict[int, int]) -> tuple[int, int, int]:
    """Prefill tokens, decoding rows and keys read of one step, as StepCost counts them."""
    prefill = decode = keys = 0
    for event in step.events:
        match event:
            case Computed(sequence, tokens):
                end = computed[sequence] = computed.get(sequence, 0) + tokens
                keys += end
                if tokens == 1:
                    decode += 1
                else:
                    prefill += tokens
            case PrefixLookup(sequence=sequence, hit=hit):
                computed[sequence] = hit
            case Fork(parent, child):
                computed[child] = computed.get(parent, 0)
            case RequestAdded(sequence=sequence) | Preempt(sequence=sequence):
                computed[sequence] = 0
            case SequenceFinished(sequence=sequence):
                computed.pop(sequence, None)
    return prefill, decode, keys


def _said(weights: Sequence[float], sample: Sample) -> float:
    prefill, decode, keys, _ = sample
    return weights[0] + weights[1] * prefill + weights[2] * decode + weights[3] * keys


def _least_squares(samples: Sequence[Sample]) -> list[float]:
    """Four weights, none below 0: of every choice of parts that are not 0, the best that holds."""
    rows = [(1.0, *map(float, sample[:3])) for sample in samples]
    took = [sample[3] for sample in samples]
    scale = [max(1e-300, sum(row[i] * row[i] for row in rows)) ** 0.5 for i in range(4)]
    products = [
        [sum(row[i] * row[j] for row in rows) / (scale[i] * scale[j]) for j in range(4)]
        for i in range(4)
    ]
    target = [
        sum(row[i] * y for row, y in zip(rows, took, strict=True)) / scale[i] for i in range(4)
    ]
    best, least = [0.0] * 4, 0.0
    for size in range(1, 5):
        for chosen in itertools.combinations(range(4), size):
            solved = _solved([[products[i][j] for j in chosen] for i in chosen],
                             [target[i] for i in chosen])  # fmt: skip
            if solved is None or min(solved) < 0:
                continue
            # At a least-squares solution w this is the error beyond that of all zeros: - w · target.
            error = -sum(w * target[i] for w, i in zip(solved, chosen, strict=True))
            if error < least:
                best, least = [0.0] * 4, error
                for w, i in zip(solved, chosen, strict=True):
                    best[i] = w / scale[i]
    return best


def _solved(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with pivots; None where the columns can't be told apart."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        if abs(rows[pivot][i]) < 1e-12:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, size):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    solved = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * solved[j] for j in range(i + 1, size))
        solved[i] = (rows[i][size] - known) / rows[i][i]
    return solved
