"""A runner whose KV is the text that it stands for, so that a wrong block is seen when it is read."""

from engine.core.plan import Plan
from engine.core.runner import ModelFreeRunner

Slot = tuple[int, int]


class KvRunner(ModelFreeRunner):
    """Draws tokens without a model, but keeps for every slot what real KV depends on.

    That is the token and all those before it. A step reads the whole table of each row, as attention
    does, and fails where a slot holds KV of anything else: a block that was handed out too early,
    a copy that came late, a hit on the wrong prefix. `copies` remembers what was copied.
    """

    def __init__(self, block_size: int, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.block_size = block_size
        self.kv: dict[Slot, tuple[int, ...]] = {}
        self.copies: list[tuple[int, int]] = []

    def copy_blocks(self, copies: list[tuple[int, int]]) -> None:
        self.copies += copies
        offsets = range(self.block_size)
        read = [[self.kv.get((source, offset)) for offset in offsets] for source, _ in copies]
        for (_, target), slots in zip(copies, read, strict=True):
            for offset, content in zip(offsets, slots, strict=True):
                if content is not None:
                    self.kv[target, offset] = content

    def run(self, plan: Plan) -> None:
        for row in plan.rows:
            for position in range(row.start, row.start + row.count):
                tokens = tuple(row.sequence.tokens[: position + 1])
                self.kv[self._slot(row.sequence.table, position)] = tokens
        for row in plan.rows:
            for position in range(row.start + row.count):
                slot = self._slot(row.sequence.table, position)
                tokens = tuple(row.sequence.tokens[: position + 1])
                assert self.kv.get(slot) == tokens, f"slot {slot} holds the KV of other tokens"

    def _slot(self, table: list[int], position: int) -> Slot:
        return table[position // self.block_size], position % self.block_size
