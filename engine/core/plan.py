"""Plan: what one step does, from schedule() to commit()."""

import msgspec

from engine.core.sequence import Sequence


class Row(msgspec.Struct, gc=False):
    """One sequence's share of a step: tokens[start : start + count] get KV.

    `samples` lists the sequences that each draw a token from the logits of the row's last token:
    the sequence itself, and the children that fork from it once the row is computed. It is empty
    where tokens of the sequence are left to compute.
    """

    sequence: Sequence
    start: int
    count: int
    samples: list[Sequence]


class Plan:
    """What one step does. Copies (source, target) run first, and read the state before the step."""

    def __init__(self) -> None:
        self.copies: list[tuple[int, int]] = []
        self.rows: list[Row] = []

    @property
    def num_tokens(self) -> int:
        return sum(row.count for row in self.rows)

    @property
    def samples(self) -> list[Sequence]:
        """Sequences that draw a token, in the order in which commit() expects the tokens."""
        return [sequence for row in self.rows for sequence in row.samples]
