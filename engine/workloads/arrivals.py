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


def bursts(rate: float, on: float, off: float, seed: int) -> Iterator[float]:
    """`on` seconds of requests, `off` seconds of none, and again; `rate` a second over all of it.

    While they come they are Poisson, (on + off) / on times as fast.
    """
    for busy in poisson(rate * (on + off) / on, seed):
        yield busy + busy // on * off
