"""What a simulated client asks, down to the tokens: prompts, and what each completion will say.

Tokens stand for content only: they are equal where the contents are, so that the prefix index finds
what it would find. STOP ends a completion before its max_tokens.
"""

import random
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from engine.core.config import SamplingParams
from engine.workloads.prompts import prompt_bytes
from engine.workloads.request import WorkloadRequest

STOP = -1
"""The token that ends a completion. No prompt has it, and it never gets KV."""


class Asked(msgspec.Struct, frozen=True):
    """One request to come, at `arrival` seconds of the simulated clock.

    outputs: the tokens of each of the n completions, the last of which is replaced by STOP where the
    client allowed more (max_tokens). Beams have no outputs: they run for max_tokens.
    """

    request_id: str
    arrival: float
    prompt: Sequence[int]
    outputs: tuple[Sequence[int], ...]
    max_tokens: int
    seed: int = 0
    n: int = 1
    use_beam_search: bool = False
    priority: int = 0

    def params(self) -> SamplingParams:
        """Raises RequestError for a request that no engine takes."""
        stops = any(len(output) < self.max_tokens for output in self.outputs)
        return SamplingParams(
            n=self.n,
            max_tokens=self.max_tokens,
            seed=self.seed,
            ignore_eos=True,
            stop_token_ids=(STOP,) if stops else (),
            use_beam_search=self.use_beam_search,
        )


def asked(requests: Iterable[WorkloadRequest], seed: int) -> Iterator[Asked]:
    """A workload's requests with tokens, the same for a seed; made one at a time, as they are taken."""
    for number, request in enumerate(requests):
        lengths = request.outputs or (request.output_tokens,) * request.n
        yield Asked(
            request_id=f"r{number}",
            arrival=request.arrival,
            prompt=prompt_bytes(seed, number, request),
            outputs=() if request.use_beam_search else _outputs(seed, number, lengths),
            max_tokens=(
                request.output_tokens
                if request.use_beam_search
                else max(request.max_tokens, *lengths)
            ),
            seed=number,
            n=request.n,
            use_beam_search=request.use_beam_search,
            priority=request.priority,
        )


def _outputs(seed: int, number: int, lengths: Iterable[int]) -> tuple[bytes, ...]:
    draw = random.Random(f"{seed} outputs {number}")
    return tuple(draw.randbytes(length) for length in lengths)
