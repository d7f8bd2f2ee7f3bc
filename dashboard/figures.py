"""The numbers above the pool, read from one PoolState; None is what the source does not know."""

from dataclasses import dataclass

from dashboard.readable import UNKNOWN, count, factor, percent
from engine.events import PoolState


@dataclass(frozen=True)
class Figures:
    """Blocks, slots, sequences and tokens as of one record. `tokens_per_second` covers seconds."""

    num_blocks: int
    active: int | None
    cached: int | None
    free: int | None
    slots_filled: int | None
    slots_allocated: int | None
    shared: int | None
    references: int | None
    running: int | None
    waiting: int | None
    preempted: int | None
    preemptions: int
    copies: int
    computed_tokens: int
    recomputed_tokens: int | None
    tokens_per_second: float | None


def read_figures(state: PoolState, tokens_per_second: float | None) -> Figures:
    """Costs a pass over the active blocks: call it once a second, not once a step."""
    knows = set(state.header.knows)
    blocks, fills = "physical_blocks" in knows, "fills" in knows
    references, queues = "ref_counts" in knows, "queues" in knows
    lengths, totals = state.queues, state.totals
    return Figures(
        num_blocks=state.num_blocks,
        active=state.active_blocks if blocks else None,
        cached=state.cached_blocks if blocks else None,
        free=state.free_blocks if blocks else None,
        slots_filled=state.slots_filled if fills else None,
        slots_allocated=state.slots_allocated if blocks else None,
        shared=state.shared_blocks if references else None,
        references=state.references if references else None,
        running=lengths.running if queues else None,
        waiting=lengths.waiting if queues else None,
        preempted=lengths.preempted if queues else None,
        preemptions=sum(totals.preemptions.values()),
        copies=totals.cow_copies,
        computed_tokens=totals.prefill_tokens + totals.decode_tokens + totals.recompute_tokens,
        recomputed_tokens=totals.recompute_tokens if "recompute" in knows else None,
        tokens_per_second=tokens_per_second,
    )


@dataclass(frozen=True)
class Card:
    """One figure as shown: its words, its value with unit, and what it means."""

    label: str
    value: str
    help: str


def cards(f: Figures) -> list[Card]:
    """The row of figures, in the order of the page."""
    speed = UNKNOWN if f.tokens_per_second is None else f"{f.tokens_per_second:,.0f} tok/s"
    return [
        Card(
            "Active blocks",
            count(f.active),
            "Blocks that at least one sequence's block table points at (ref count 1 or more). "
            f"Active, cached and free sum to the pool's {f.num_blocks:,} blocks.",
        ),
        Card(
            "Cached blocks",
            count(f.cached),
            "Blocks that no sequence holds but whose content is still in the prefix index: a later "
            "prompt may reuse them, or they are evicted when room is needed.",
        ),
        Card("Free blocks", count(f.free), "Blocks that no sequence holds and that hold nothing."),
        Card(
            "KV utilisation",
            percent(f.slots_filled, f.slots_allocated),
            "Slots that hold a token's KV, of all slots in active blocks: "
            f"{count(f.slots_filled)} of {count(f.slots_allocated)}. The rest is the unused tail "
            "of each sequence's last block.",
        ),
        Card(
            "Shared blocks",
            count(f.shared),
            "Blocks that more than one sequence's table points at (ref count above 1).",
        ),
        Card(
            "Sharing factor",
            factor(f.references, f.active),
            "Block table entries for each active block: "
            f"{count(f.references)} entries, {count(f.active)} blocks. 1.00 × means nothing "
            "is shared.",
        ),
        Card("Running", count(f.running), "Sequences that hold blocks and take part in steps."),
        Card("Waiting", count(f.waiting), "Sequences in the queue that have not begun."),
        Card(
            "Preempted",
            count(f.preempted),
            "Sequences that lost their blocks and wait to be computed again.",
        ),
        Card(
            "Preemptions",
            count(f.preemptions),
            "How often a running sequence lost its blocks, since the engine started.",
        ),
        Card(
            "CoW copies",
            count(f.copies),
            "Blocks copied because a sequence was about to write to a shared one, since the engine "
            "started.",
        ),
        Card(
            "Recomputed",
            "unknown" if f.recomputed_tokens is None else f"{f.recomputed_tokens:,} tok",
            "Tokens that were computed a second time after a preemption, since the engine started.",
        ),
        Card(
            "Recompute tax",
            percent(f.recomputed_tokens, f.computed_tokens),
            f"Recomputed tokens of all {f.computed_tokens:,} tokens that the model computed.",
        ),
        Card(
            "Speed",
            speed,
            "Tokens that the model computed (prompt, new and recomputed) a second, over the last "
            "5 seconds.",
        ),
    ]
