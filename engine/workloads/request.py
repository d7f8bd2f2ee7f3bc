"""What a workload asks of a server: when, how long a prompt, how long an answer. No text, no HTTP."""

from collections.abc import Iterable, Iterator

import msgspec

from engine.core.config import ConfigError
from engine.workloads.lengths import Lengths

MOST_TOKENS = 10_000_000
"""Of a prompt or an output: beyond what any model reads, and little enough to be made up in memory."""


class WorkloadError(ConfigError):
    """A workload that cannot be read or made. One line with the file, the place and the remedy."""


class WorkloadRequest(msgspec.Struct, frozen=True):
    """One request to come.

    arrival: seconds from the workload's start. prompt_tokens, output_tokens: at least 1. prefix_ids:
    names of the prompt's blocks of prefix_block_tokens tokens, from its beginning; the last one may
    be cut by the prompt's end. Equal names stand for equal tokens; tokens beyond the named blocks
    are this request's own. n: completions, as beams with use_beam_search. outputs: the length of each
    completion, where these differ; then output_tokens is the longest. max_tokens: what the client
    allowed; 0 is output_tokens. priority: lower first, where the engine's policy asks for it.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    prefix_ids: tuple[int, ...] = ()
    prefix_block_tokens: int = 0
    n: int = 1
    use_beam_search: bool = False
    outputs: tuple[int, ...] = ()
    max_tokens: int = 0
    priority: int = 0


def planned(arrivals: Iterable[float], lengths: Iterable[Lengths]) -> Iterator[WorkloadRequest]:
    """Requests of drawn lengths at drawn arrivals (seconds); ends with the shorter of the two."""
    for arrival, (prompt, output) in zip(arrivals, lengths, strict=False):
        yield WorkloadRequest(arrival, prompt, output)


def rescheduled(
    requests: Iterable[WorkloadRequest], arrivals: Iterable[float]
) -> Iterator[WorkloadRequest]:
    """The same requests at other arrivals (seconds)."""
    for arrival, request in zip(arrivals, requests, strict=False):
        yield msgspec.structs.replace(request, arrival=arrival)


def scaled(
    requests: Iterable[WorkloadRequest], rate: float = 1.0, length: float = 1.0
) -> Iterator[WorkloadRequest]:
    """The same requests `rate` times as often, with prompts and outputs `length` times as long.

    Shared blocks shrink and grow with the prompts, so that the same share of each prompt is shared.
    Raises WorkloadError for a length above MOST_TOKENS.
    """
    for request in requests:
        yield msgspec.structs.replace(
            request,
            arrival=request.arrival / rate,
            prompt_tokens=_scaled(request.prompt_tokens, length),
            output_tokens=_scaled(request.output_tokens, length),
            outputs=tuple(_scaled(output, length) for output in request.outputs),
            max_tokens=_scaled(request.max_tokens, length) if request.max_tokens else 0,
            prefix_block_tokens=(
                _scaled(request.prefix_block_tokens, length) if request.prefix_ids else 0
            ),
        )


def _scaled(tokens: int, factor: float) -> int:
    if tokens * factor > MOST_TOKENS:
        raise WorkloadError(
            f"a length of {tokens * factor:.6g} tokens is more than {MOST_TOKENS:,}: give shorter "
            "lengths, a smaller --sigma or --scale-length"
        )
    return max(1, round(tokens * factor))
