"""The rules that a trace can show, and the exception for one that does not hold."""

RULES: dict[int, str] = {
    1: "free, cached and active blocks are disjoint and sum to the pool",
    2: "a ref count is the number of table entries that point at the block",
    3: "a table has the blocks that its computed tokens need, no more and no fewer",
    4: "a sequence samples when all its tokens but the new one are computed",
    5: "a write goes only to a block with ref count 1 outside the prefix index",
    6: "a fork allocates nothing, and only a shared block that is not full is copied",
    7: "the source of a copy is not handed out before the copy has run",
    8: "an allocation fails only where too few blocks can be had, and then changes nothing",
    9: "only full blocks that were just computed enter the prefix index, each hash once",
    10: "a prefix hit covers whole, cached blocks and leaves a token to compute",
    11: "blocks without content are handed out first, then the least recently used",
    12: "a step keeps to its limits, and runs a sequence once",
    13: "a preempted sequence keeps no block, and what it computes again is counted as such",
    14: "an older sequence is never preempted or passed over for a younger one",
    19: "records are numbered without gaps, and each follows from the state before it",
    20: "totals, queues and ended requests say what the events say",
}
"""By the numbers of docs/architecture.md. 15 to 18 are about what no record shows."""


class BrokenRule(Exception):
    """A rule does not hold. `text` says of which block or sequence, and how."""

    def __init__(self, rule: int, text: str) -> None:
        super().__init__(text)
        self.rule = rule
        self.text = text


def require(held: bool, rule: int, text: str) -> None:
    """Raise BrokenRule unless it held. For places that are not on every event's way."""
    if not held:
        raise BrokenRule(rule, text)
