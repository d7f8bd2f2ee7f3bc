"""How long prompts and outputs are: endless draws, the same for a seed.

Prompts and outputs are drawn from streams of their own, so that another mean of one leaves the
other as it was.
"""

import math
import random
from collections.abc import Iterator
from typing import NamedTuple


class Lengths(NamedTuple):
    """Tokens of one request; both at least 1."""

    prompt: int
    output: int


def fixed(prompt: int, output: int) -> Iterator[Lengths]:
    """Always the same."""
    while True:
        yield Lengths(prompt, output)


def uniform(prompt: tuple[int, int], output: tuple[int, int], seed: int) -> Iterator[Lengths]:
    """Each whole number between the two bounds, both included, equally often."""
    prompts, outputs = _streams(seed)
    while True:
        yield Lengths(prompts.randint(*prompt), outputs.randint(*output))


def lognormal(prompt_mean: float, output_mean: float, sigma: float, seed: int) -> Iterator[Lengths]:
    """Many short ones and a long tail: exp of a normal, with these means, rounded, at least 1.

    sigma: standard deviation of the logarithm. 0 gives the means; at 1, one length in a hundred is
    more than six times the mean.
    """
    prompts, outputs = _streams(seed)
    prompt_mu = math.log(prompt_mean) - sigma**2 / 2
    output_mu = math.log(output_mean) - sigma**2 / 2
    while True:
        yield Lengths(
            max(1, round(prompts.lognormvariate(prompt_mu, sigma))),
            max(1, round(outputs.lognormvariate(output_mu, sigma))),
        )


def _streams(seed: int) -> tuple[random.Random, random.Random]:
    return random.Random(f"{seed} prompt lengths"), random.Random(f"{seed} output lengths")
