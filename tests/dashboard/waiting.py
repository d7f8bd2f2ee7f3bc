"""Waiting for a condition with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 10.0, what: str = "the condition") -> T:
    """The first true value of `condition`; AssertionError when the time is over."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds:g} s"
        time.sleep(0.01)
    return value
