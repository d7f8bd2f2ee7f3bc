"""What there is to say about one block: the answer to a hover, and at more length to a pin."""

from typing import Any

from dashboard.cells import CellState, Grid, Mark
from engine.events import PoolState

MAX_OWNERS = 12
"""Owners that are listed; `more_owners` counts the rest."""
MAX_CHAIN = 64
"""Blocks of a prefix chain that are listed, the nearest ones."""


def inspect_block(state: PoolState, grid: Grid, block: int) -> dict[str, Any]:
    """State, owners, fill and content of a block as of `seq`. None is what the source does not say.

    `mates` are the blocks of the first owner, for the outline of its whole sequence.
    """
    knows = state.header.knows
    owners = sorted(state.owners.get(block, {}).items())
    first = state.sequences[owners[0][0]] if owners else None
    return {
        "block": block,
        "seq": state.seq,
        "step": state.step,
        "state": CellState(int(grid.cells[block]) & 7).name.lower(),
        "mark": {Mark.COPIED: "copied", Mark.LOST: "lost"}.get(grid.mark(block)),
        "ref_count": state.ref_count[block] if "ref_counts" in knows else None,
        "filled": state.filled[block] if "fills" in knows else None,
        "block_size": state.block_size,
        "last_change": state.last_change[block],
        "cached_as": state.hashes.get(block),
        "owners": [
            {
                "sequence": sequence,
                "request": state.sequences[sequence].request,
                "index": index,
                "blocks": len(state.sequences[sequence].table),
            }
            for sequence, index in owners[:MAX_OWNERS]
        ],
        "more_owners": max(0, len(owners) - MAX_OWNERS),
        "mates": first.table if first is not None else [],
        "text": state.block_text(block),
    }


def prefix_chain(state: PoolState, block: int) -> list[dict[str, Any]] | None:
    """The blocks whose content comes before this one's, from the first on, with their hashes.

    None for a block that nobody owns: only its own hash is known then.
    """
    owners = state.owners.get(block)
    if not owners:
        return None
    sequence = min(owners)
    before = state.sequences[sequence].table[: owners[sequence]][-MAX_CHAIN:]
    return [{"block": mate, "hash": state.hashes.get(mate)} for mate in before]


def request_blocks(state: PoolState, request: str) -> list[int]:
    """The blocks in the tables of a request's sequences, each once; none where it has ended."""
    blocks: dict[int, None] = {}
    for sequence in state.sequences.values():
        if sequence.request == request:
            blocks.update(dict.fromkeys(sequence.table))
    return list(blocks)
