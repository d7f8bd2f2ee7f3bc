"""The block tables of one request as cells: logical index -> physical block, and what is shared."""

from dataclasses import dataclass

from engine.events import PoolState

CELLS_PER_ROW = 24
"""A longer table goes on in another row: a cell must stay wide enough for its number."""
MAX_ROWS = 48


@dataclass(frozen=True)
class Cell:
    """Entry `index` of a sequence's table. `row` and `column` are where it is drawn.

    `others` names who else points at the block: sequences of this request or other requests. `ref_count`
    and `filled` are None where the source does not know them.
    """

    sequence: int
    row: int
    label: str
    column: int
    index: int
    block: int
    shared: bool
    ref_count: int | None
    filled: int | None
    others: str


@dataclass(frozen=True)
class Join:
    """Two cells, one above the other, that are the same physical block."""

    block: int
    column: int
    row: int
    label: str
    label_below: str


@dataclass(frozen=True)
class Tables:
    """`rows` are drawn of `all_rows`. Joins link neighbours in the order of the rows."""

    cells: list[Cell]
    joins: list[Join]
    rows: int
    all_rows: int


def block_tables(state: PoolState, request: str) -> Tables:
    """The tables of the request's sequences at `state`; no cells where it holds nothing."""
    knows = state.header.knows
    sequences = sorted(
        (s for s in state.sequences.values() if s.request == request and s.table),
        key=lambda s: s.sequence,
    )
    chunks = 1 + max((len(s.table) - 1 for s in sequences), default=0) // CELLS_PER_ROW
    cells: list[Cell] = []
    row = 0
    # The same stretch of all sequences stands together, so that shared blocks stand together.
    for chunk in range(chunks):
        start = chunk * CELLS_PER_ROW
        for sequence in sequences:
            part = sequence.table[start : start + CELLS_PER_ROW]
            if not part:
                continue
            if row < MAX_ROWS:
                label = f"{sequence.sequence}" if chunk == 0 else f"{sequence.sequence} +{start}"
                cells += [
                    Cell(
                        sequence=sequence.sequence,
                        row=row,
                        label=label,
                        column=column,
                        index=start + column,
                        block=block,
                        shared=len(state.owners[block]) > 1,
                        ref_count=state.ref_count[block] if "ref_counts" in knows else None,
                        filled=state.filled[block] if "fills" in knows else None,
                        others=_others(state, block, sequence.sequence, request),
                    )
                    for column, block in enumerate(part)
                ]
            row += 1
    return Tables(cells, _joins(cells), min(row, MAX_ROWS), row)


def _others(state: PoolState, block: int, sequence: int, request: str) -> str:
    mates = [number for number in sorted(state.owners[block]) if number != sequence]
    named = [
        f"sequence {number}"
        if state.sequences[number].request == request
        else f"request {state.sequences[number].request}"
        for number in mates[:4]
    ]
    more = [f"{len(mates) - 4} more"] if len(mates) > 4 else []
    return ", ".join([*dict.fromkeys(named), *more]) or "nobody"


def _joins(cells: list[Cell]) -> list[Join]:
    # A block stands at the same logical index in all tables that share it, so in one column.
    above: dict[int, Cell] = {}
    joins = []
    for cell in cells:
        if cell.block in above:
            upper = above[cell.block]
            joins.append(Join(cell.block, cell.column, upper.row, upper.label, cell.label))
        above[cell.block] = cell
    return joins
