"""The figures beside the pool, as of one moment; None is what the source does not know."""

from dataclasses import dataclass

import numpy as np

from dashboard.cells import CellState
from dashboard.history import last_seconds
from dashboard.readable import UNKNOWN, count, factor, percent, plural, seconds
from dashboard.session import Look

MINUTE = 60.0
RATE_SECONDS = 5.0
SHORTEST_SPAN = 0.5
"""Seconds that a source must have spoken before a rate is given."""


@dataclass(frozen=True)
class Figures:
    """Blocks, slots and sequences after one record; rates over the time before it.

    `*_minute` cover the last 60 seconds before the moment, `tokens_per_second` the last 5.
    `lag` is seconds from a step's end to its arrival here, for a live moment alone.
    """

    num_blocks: int
    block_size: int
    active: int | None
    cached: int | None
    free: int | None
    shared: int | None
    slots_filled: int | None
    references: int | None
    running: int | None
    waiting: int | None
    preempted: int | None
    preemptions_minute: int
    computed_minute: int
    recomputed_minute: int | None
    queried_minute: int
    hit_minute: int
    queried_total: int
    hit_total: int
    preemptions_total: int
    recomputed_total: int | None
    tokens_per_second: float | None
    step_seconds: float | None
    lag: float | None


def read_figures(look: Look, now: float) -> Figures | None:
    """The figures of a look, None where none may be shown. `now` is producer time.

    For a live moment `now` goes on while the engine is idle; for any other it is the moment's time.
    """
    with look.scene.lock:
        state, grid = look.scene.state, look.scene.grid
        if not look.current or state is None or not state.complete or grid is None:
            return None
        knows = set(state.header.knows)
        counts, queues, totals = list(grid.counts), state.queues, state.totals
        slots_filled, references = grid.slots_filled, grid.references
        preemptions = sum(totals.preemptions.values())
        recomputed, hits = totals.recompute_tokens, totals.prefix_hit_tokens
        queried = totals.prefix_queried_tokens
    minute = last_seconds(look.rows, now, MINUTE)
    recompute = int(minute["recompute"].sum())
    blocks, ref_counts, lengths = (
        "physical_blocks" in knows,
        "ref_counts" in knows,
        "queues" in knows,
    )
    return Figures(
        num_blocks=grid.num_blocks,
        block_size=grid.block_size,
        active=counts[CellState.USED] + counts[CellState.SHARED] if blocks else None,
        cached=counts[CellState.CACHED] if blocks else None,
        free=counts[CellState.FREE] if blocks else None,
        shared=counts[CellState.SHARED] if ref_counts else None,
        slots_filled=slots_filled if "fills" in knows else None,
        references=references if ref_counts else None,
        running=queues.running if lengths else None,
        waiting=queues.waiting if lengths else None,
        preempted=queues.preempted if lengths else None,
        preemptions_minute=int(minute["preemptions"].sum()),
        computed_minute=int(minute["prefill"].sum() + minute["decode"].sum()) + recompute,
        recomputed_minute=recompute if "recompute" in knows else None,
        queried_minute=int(minute["prefix_queried"].sum()),
        hit_minute=int(minute["prefix_hit"].sum()),
        queried_total=queried,
        hit_total=hits,
        preemptions_total=preemptions,
        recomputed_total=recomputed if "recompute" in knows else None,
        tokens_per_second=_rate(look.rows, now),
        step_seconds=_step_seconds(minute) if "durations" in knows else None,
        lag=look.feed.lag if look.live else None,
    )


def _rate(rows: np.ndarray, now: float) -> float | None:
    """Computed tokens a second over the last RATE_SECONDS, or since the source began to speak."""
    if not len(rows):
        return None
    segment = rows[rows["segment"] == rows["segment"][-1]]
    span = min(RATE_SECONDS, now - float(segment["time"][0]))
    if span < SHORTEST_SPAN:
        return None
    recent = last_seconds(segment, now, span)
    return float(sum(recent[kind].sum() for kind in ("prefill", "decode", "recompute"))) / span


def _step_seconds(rows: np.ndarray) -> float | None:
    """The median duration of the steps that ran the model."""
    ran = rows[(rows["prefill"] + rows["decode"] + rows["recompute"]) > 0]
    if not len(ran):
        return None
    return float(np.median(ran["schedule"] + ran["model"] + ran["sample"]))


@dataclass(frozen=True)
class Shown:
    """One figure as shown: its words, its value with unit, what it means, and whether to worry."""

    label: str
    value: str
    help: str
    tone: str = "plain"


def shown_figures(f: Figures) -> list[tuple[str, list[Shown]]]:
    """Group -> figures, in the order of the page. Tones are plain, warn and bad."""
    slots = None if f.active is None else f.active * f.block_size
    speed = "–" if f.tokens_per_second is None else f"{f.tokens_per_second:,.0f} tok/s"
    step = "–" if f.step_seconds is None else seconds(f.step_seconds)
    return [
        (
            "Blocks",
            [
                Shown(
                    "Active",
                    count(f.active),
                    "Blocks that at least one sequence's block table points at (ref count 1 or "
                    f"more). Active, cached and free sum to the pool's {f.num_blocks:,} blocks.",
                ),
                Shown(
                    "Cached",
                    count(f.cached),
                    "Blocks that no sequence holds but whose content is still in the prefix "
                    "cache: a later prompt may share them, or they are evicted for room.",
                ),
                Shown(
                    "Free",
                    count(f.free),
                    "Blocks that no sequence holds and that hold nothing. With 0 free and 0 "
                    "cached, the next block has to be taken from a running sequence.",
                    "warn" if f.free == 0 and f.cached == 0 else "plain",
                ),
                Shown(
                    "KV utilisation",
                    percent(f.slots_filled, slots),
                    "Slots that hold a token's KV, of all slots in active blocks: "
                    f"{count(f.slots_filled)} of {count(slots)}. The rest is the unused tail of "
                    "each sequence's last block.",
                ),
                Shown(
                    "Sharing factor",
                    factor(f.references, f.active),
                    f"Block table entries for each active block: {count(f.references)} entries on "
                    f"{count(f.active)} blocks, {count(f.shared)} of them shared. 1.00 × means "
                    "that nothing is shared.",
                ),
            ],
        ),
        (
            "Sequences",
            [
                Shown("Running", count(f.running), "Sequences that hold blocks and run in steps."),
                Shown("Waiting", count(f.waiting), "Sequences in the queue that never began."),
                Shown(
                    "Preempted",
                    count(f.preempted),
                    "Sequences that lost their blocks and wait to be computed again.",
                    "warn" if f.preempted else "plain",
                ),
            ],
        ),
        (
            "Last minute",
            [
                Shown(
                    "Preemptions",
                    count(f.preemptions_minute),
                    "How often a running sequence lost its blocks in the last 60 seconds; "
                    f"{f.preemptions_total:,} since the engine started.",
                    "warn" if f.preemptions_minute else "plain",
                ),
                Shown(
                    "Recompute tax",
                    percent(f.recomputed_minute, f.computed_minute),
                    "Share of the model's work in the last 60 seconds that only repeated what a "
                    f"preemption had thrown away: {count(f.recomputed_minute)} of "
                    f"{plural(f.computed_minute, 'token')}. Since the engine started: "
                    f"{count(f.recomputed_total)}.",
                    _tax_tone(f),
                ),
                Shown(
                    "Prefix hit rate",
                    percent(f.hit_minute, f.queried_minute),
                    "Prompt tokens found in the prefix cache, of those looked up in the last 60 "
                    f"seconds: {f.hit_minute:,} of {f.queried_minute:,}. Since the engine "
                    f"started: {percent(f.hit_total, f.queried_total)}.",
                ),
            ],
        ),
        (
            "Speed",
            [
                Shown(
                    "Throughput",
                    speed,
                    "Tokens that the model computed a second (prompt, new and recomputed ones), "
                    "over the last 5 seconds.",
                ),
                Shown(
                    "Step time",
                    step if f.step_seconds is not None or f.computed_minute == 0 else UNKNOWN,
                    "Median duration of the steps of the last 60 seconds that ran the model.",
                ),
                Shown(
                    "Stream lag",
                    _lag(f.lag),
                    "From the end of the newest step in the engine to its arrival here, by the "
                    "clocks of both machines. A dash where the moment is not live.",
                    "warn" if f.lag is not None and f.lag > 2 else "plain",
                ),
            ],
        ),
    ]


def _lag(lag: float | None) -> str:
    if lag is None:
        return "–"
    # Less than nothing, or hours, is what two clocks differ by.
    return seconds(max(0.0, lag)) if -1 < lag < 3600 else "clocks differ"


def _tax_tone(f: Figures) -> str:
    if not f.recomputed_minute or not f.computed_minute:
        return "plain"
    return "bad" if f.recomputed_minute > 0.2 * f.computed_minute else "warn"
