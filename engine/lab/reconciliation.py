"""Why an engine runs fewer sequences than its memory was sized for, cause by cause.

The causes are taken in one order, each on top of those before it:

    sized for      memory in blocks // blocks of a sequence of the assumed length
    block bytes    the engine's bytes per block and block size are other than assumed
    pool           it has other blocks than the memory would make: weights, activations, an override
    watermark      blocks that it really keeps free for running sequences to grow into
    length         running sequences have another mean length than assumed
    partial blocks the last block of each is filled to another degree than at that mean length
    sharing        blocks in several tables are held once
    max_num_seqs   no more may run
    demand         nothing waits for the room that is left; or, where something does, room:
                   what is left is too little for the next request, or has just been given back
    runs           the running sequences

So the differences sum exactly to what is missing. In another order, the same causes would share it
otherwise: that holds for any such account.
"""

from enum import StrEnum
from fractions import Fraction

import msgspec

from engine.lab.capacity import Sizing, blocks_of
from engine.lab.observation import Observation


class Cause(StrEnum):
    """What makes the number of sequences another one, in the order of the account."""

    BLOCK_BYTES = "block bytes"
    POOL = "pool"
    WATERMARK = "watermark"
    LENGTH = "length"
    PARTIAL_BLOCKS = "partial blocks"
    SHARING = "sharing"
    MAX_NUM_SEQS = "max_num_seqs"
    DEMAND = "demand"
    ROOM = "room"


class Effect(msgspec.Struct, frozen=True):
    """missing: sequences that the cause takes away; below 0, those it adds. why: with its figures."""

    cause: Cause
    missing: int
    why: str


class Reconciliation(msgspec.Struct, frozen=True):
    """`sized_for` - the effects in their order = `runs`. largest: of those that take away, if any."""

    length: int
    sized_for: int
    runs: int
    effects: list[Effect]
    largest: Effect | None

    @property
    def missing(self) -> int:
        return self.sized_for - self.runs


def own_sizing(seen: Observation) -> Sizing:
    """The engine's own pool: what to compare with where nothing else was assumed.

    An engine without a model counts as one of a byte a token.
    """
    per_token = max(1, seen.bytes_per_block // seen.block_size)
    return Sizing(per_token, seen.block_size, seen.num_blocks * per_token * seen.block_size)


def reconcile(sizing: Sizing, length: int, seen: Observation) -> Reconciliation:
    """Account for the difference between the sequences of `length` tokens that `sizing` holds and
    those that ran at the moment that was seen."""
    fit = sizing.row(length).sequences
    account = _Account(fit)
    _from_memory(account, sizing, length, seen)
    if seen.running and seen.active:
        _from_sequences(account, length, seen)
    _from_limits(account, seen)
    assert account.fit == seen.running
    takes = [effect for effect in account.effects if effect.missing > 0]
    return Reconciliation(
        length=length,
        sized_for=fit,
        runs=seen.running,
        effects=account.effects,
        largest=max(takes, key=lambda effect: effect.missing, default=None),
    )


def conclusion(found: Reconciliation, seen: Observation) -> list[str]:
    """What to take from an account, in sentences."""
    lines = [
        f"Sized for {found.sized_for:,}, runs {found.runs:,} "
        f"({seen.waiting:,} waiting) at step {max(0, seen.step):,} of {seen.engine}."
    ]
    if not seen.running:
        lines.append("No sequence runs at this moment: look again under load.")
    elif found.missing == 0:
        lines.append("Nothing is missing.")
    else:
        sign = 1 if found.missing > 0 else -1
        most = max(found.effects, key=lambda effect: sign * effect.missing)
        done = "taken" if sign > 0 else "added"
        lines.append(
            f"Most is {done} by {most.cause}: {abs(most.missing):,} "
            f"sequence{'' if abs(most.missing) == 1 else 's'}; {most.why}."
        )
    return lines


class _Account:
    """`fit`: the sequences that fit with the causes so far."""

    def __init__(self, fit: int) -> None:
        self.fit = fit
        self.effects: list[Effect] = []

    def set(self, cause: Cause, fit: int, why: str) -> None:
        self.effects.append(Effect(cause, self.fit - fit, why))
        self.fit = fit


def _from_memory(account: _Account, sizing: Sizing, length: int, seen: Observation) -> None:
    per_sequence = blocks_of(length, seen.block_size)
    per_token = (seen.bytes_per_block // seen.block_size) or sizing.bytes_per_token
    blocks = sizing.memory // (per_token * seen.block_size)
    if not seen.bytes_per_block:
        why = "the engine runs without a model and tells no bytes"
    elif per_token == sizing.bytes_per_token:
        why = f"a token takes {per_token:,} bytes, as assumed"
    else:
        why = f"a token takes {per_token:,} bytes, not {sizing.bytes_per_token:,}"
    if seen.block_size != sizing.block_size:
        why += f", in blocks of {seen.block_size}, not {sizing.block_size}"
    account.set(Cause.BLOCK_BYTES, blocks // per_sequence, why)

    why = f"the pool has {seen.num_blocks:,} blocks, the memory makes {blocks:,}"
    if seen.bytes_per_block and blocks != seen.num_blocks:
        gone = (blocks - seen.num_blocks) * seen.bytes_per_block
        why += (
            f": {gone:,} bytes went to weights, activations or an override"
            if gone > 0
            else f": {-gone:,} bytes more were found"
        )
    account.set(Cause.POOL, seen.num_blocks // per_sequence, why)

    kept = _kept_free(seen)
    why = f"{kept:,} of {seen.watermark:,} watermark blocks stay free"
    account.set(Cause.WATERMARK, (seen.num_blocks - kept) // per_sequence, why)


def _kept_free(seen: Observation) -> int:
    """Running sequences may grow into the watermark: then it keeps nothing free any more."""
    return min(seen.watermark, seen.num_blocks - seen.active)


def _from_sequences(account: _Account, length: int, seen: Observation) -> None:
    blocks = seen.num_blocks - _kept_free(seen)
    mean = Fraction(sum(seen.tokens), seen.running)
    # A sequence that has just started may have no token yet, but it has a block.
    at_mean = max(1, -(-mean // seen.block_size))
    account.set(
        Cause.LENGTH,
        blocks // at_mean,
        f"running sequences have {float(mean):,.0f} tokens on average, not {length:,} "
        f"(median {seen.percentile(50):,}, 90 % up to {seen.percentile(90):,}, "
        f"longest {max(seen.tokens):,})",
    )
    entries = Fraction(sum(seen.entries), seen.running)
    account.set(
        Cause.PARTIAL_BLOCKS,
        blocks // entries,
        f"a sequence has {float(entries):,.2f} blocks on average, {at_mean:,} at the mean length: "
        f"{seen.wasted_slots / seen.running:,.1f} slots of each are empty",
    )
    own = Fraction(seen.active, seen.running)
    account.set(
        Cause.SHARING,
        blocks // own,
        f"{sum(seen.entries):,} table entries are {seen.active:,} blocks",
    )


def _from_limits(account: _Account, seen: Observation) -> None:
    most = seen.max_num_seqs
    if most is None:
        account.set(Cause.MAX_NUM_SEQS, account.fit, "the engine does not tell its limit")
    else:
        account.set(
            Cause.MAX_NUM_SEQS, min(account.fit, most), f"at most {most:,} sequences may run"
        )
    if seen.waiting:
        cause, why = Cause.ROOM, f"{seen.waiting:,} waiting"
        if account.fit > seen.running:
            why += ": the next needs more than is free, or starts with the next step"
    else:
        cause, why = Cause.DEMAND, "nothing waits: no more was asked for"
    account.set(cause, seen.running, why)
