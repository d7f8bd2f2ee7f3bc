"""The requests known at a moment as rows: those that are unfinished, then those that have ended."""

from dataclasses import dataclass

from dashboard.holders import in_words
from dashboard.journal import EndedRequest
from engine.events import PoolState
from engine.events.records import SequenceStatus

MAX_LISTED = 1_000
"""Requests that a table lists at most, the first of those that are looked for."""


@dataclass(frozen=True)
class RequestRow:
    """One request. None is what the source does not know, or what has not come to pass.

    `blocks` are different blocks in the tables of all its sequences. Seconds are since its arrival:
    until its first schedule, its first token, and its end or the moment.
    """

    request: str
    state: str
    ended: bool
    sequences: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    blocks: int | None
    preemptions: int | None
    recomputed_tokens: int | None
    queue_seconds: float | None
    first_token_seconds: float | None
    duration_seconds: float | None


def unfinished_rows(state: PoolState) -> list[RequestRow]:
    """Unfinished requests, those that hold most blocks first."""
    knows = state.header.knows
    of_request: dict[str, list] = {request: [] for request in state.requests}
    for sequence in state.sequences.values():
        of_request[sequence.request].append(sequence)
    rows = []
    for request in state.requests.values():
        sequences = of_request[request.request]
        clock = state.tally.requests[request.request]
        blocks = {block for sequence in sequences for block in sequence.table}
        statuses = [sequence.status for sequence in sequences]
        queued = all(status is SequenceStatus.WAITING for status in statuses)
        first = clock.first_token
        rows.append(
            RequestRow(
                request=request.request,
                state=in_words(statuses),
                ended=False,
                sequences=request.n,
                prompt_tokens=request.prompt_tokens,
                output_tokens=sum(state.tally.output_tokens(s.sequence) for s in sequences),
                blocks=len(blocks) if "physical_blocks" in knows else None,
                preemptions=request.preemptions,
                recomputed_tokens=request.recomputed_tokens if "recompute" in knows else None,
                queue_seconds=max(0.0, state.time - request.arrived) if queued else None,
                first_token_seconds=None if first is None else first - request.arrived,
                duration_seconds=max(0.0, state.time - request.arrived),
            )
        )
    return sorted(rows, key=lambda row: (-(row.blocks or 0), row.request))


def ended_count(state: PoolState) -> int:
    """Requests that had ended by this moment, since the engine began to count."""
    return sum(state.tally.totals.requests_finished.values())


def ended_row(ended: EndedRequest, knows: list[str]) -> RequestRow:
    """An ended request as a row."""
    timed, recompute = "latencies" in knows, "recompute" in knows
    return RequestRow(
        request=ended.request,
        state=ended.outcome,
        ended=True,
        sequences=ended.n,
        prompt_tokens=ended.prompt_tokens,
        output_tokens=ended.output_tokens,
        blocks=0 if "physical_blocks" in knows else None,
        preemptions=ended.preemptions,
        recomputed_tokens=ended.recomputed_tokens if recompute else None,
        queue_seconds=ended.queue_seconds if timed else None,
        first_token_seconds=ended.first_token_seconds if timed else None,
        duration_seconds=ended.duration_seconds if timed else None,
    )
