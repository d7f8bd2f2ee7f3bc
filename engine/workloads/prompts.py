"""What the tokens of a workload's prompts are: random, and equal exactly where the workload says so."""

import random

from engine.workloads.request import WorkloadRequest


def prompt_bytes(seed: int, number: int, request: WorkloadRequest) -> bytes:
    """A random byte for each token of the prompt of request `number`; the same for a seed.

    Blocks of equal names are equal; everything else differs from its first token on. randbytes draws
    a long prompt hundreds of times faster than one number at a time would be.
    """
    shared = b"".join(
        random.Random(f"{seed} block {name}").randbytes(request.prefix_block_tokens)
        for name in request.prefix_ids
    )[: request.prompt_tokens]
    own = random.Random(f"{seed} request {number}")
    return shared + own.randbytes(request.prompt_tokens - len(shared))
