"""Who holds the pool: unfinished requests by the blocks in their tables."""

from dataclasses import dataclass

from engine.events import PoolState
from engine.events.records import SequenceStatus


@dataclass(frozen=True)
class Holder:
    """An unfinished request. `own_blocks` counts blocks that no other request points at."""

    request: str
    state: str
    prompt_tokens: int
    n: int
    blocks: int
    own_blocks: int
    computed: int
    preemptions: int
    recomputed_tokens: int


def holders(state: PoolState) -> list[Holder]:
    """Most blocks first."""
    of_request: dict[str, list] = {request: [] for request in state.requests}
    for sequence in state.sequences.values():
        of_request[sequence.request].append(sequence)
    rows = []
    for request in state.requests.values():
        sequences = of_request[request.request]
        numbers = {sequence.sequence for sequence in sequences}
        blocks = {block for sequence in sequences for block in sequence.table}
        statuses = [sequence.status for sequence in sequences]
        rows.append(
            Holder(
                request=request.request,
                state=in_words(statuses),
                prompt_tokens=request.prompt_tokens,
                n=request.n,
                blocks=len(blocks),
                own_blocks=sum(1 for block in blocks if state.owners[block].keys() <= numbers),
                computed=sum(sequence.computed for sequence in sequences),
                preemptions=request.preemptions,
                recomputed_tokens=request.recomputed_tokens,
            )
        )
    return sorted(rows, key=lambda row: (-row.blocks, row.request))


def top_holders(state: PoolState, count: int = 5) -> list[tuple[str, int]]:
    """The `count` requests that hold most blocks, with how many; none that holds none.

    Cheap enough for every figure: a set is only made where sequences may share.
    """
    tables: dict[str, list[list[int]]] = {}
    for sequence in state.sequences.values():
        if sequence.table:
            tables.setdefault(sequence.request, []).append(sequence.table)
    held = {
        request: len(own[0]) if len(own) == 1 else len(set().union(*own))
        for request, own in tables.items()
    }
    return sorted(held.items(), key=lambda row: (-row[1], row[0]))[:count]


def in_words(statuses: list[SequenceStatus]) -> str:
    """The statuses of a request's sequences: "running", or "2 running, 1 waiting"."""
    order = (SequenceStatus.RUNNING, SequenceStatus.PREEMPTED, SequenceStatus.WAITING)
    return ", ".join(
        status.value if len(statuses) == 1 else f"{statuses.count(status)} {status.value}"
        for status in order
        if status in statuses
    )
