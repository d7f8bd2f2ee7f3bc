"""When requests come: endless arrivals in seconds from the start, the same for a seed."""

import itertools
import random
from collections.abc import Iterator


def at_once() -> Iterator[float]:
    """All at the start."""
    return itertools.repeat(0.0)


def poisson(rate: float, seed: int) -> Iterator[float]:
    """`rate` requests a second on average, each independent of the others."""
    draw = random.Random(f"{seed} arrivals")
    arrival = 0.0
    while True:
        arrival += draw.expovariate(rate)
        yield arrival
