"""Where a simulated run's requests come from: a workload by name, or a public trace."""

import sys
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Protocol

from engine.core.config import ConfigError
from engine.simulate.asked import Asked, asked
from engine.workloads import named
from engine.workloads.named import WorkloadSettings
from engine.workloads.request import WorkloadRequest, scaled


class Source(Protocol):
    """Requests that can be asked again for every run; recorded.py has another one.

    notes: what a reader of the figures must know, a sentence each. start, last: seconds of the
    simulated clock, of the run's start and of the last arrival.
    """

    description: str
    notes: list[str]
    start: float
    last: float
    count: int

    def requests(self, scale_rate: float = 1.0) -> Iterator[Asked]:
        """The requests in order of arrival, `scale_rate` times as often."""


class Workload:
    """A Source made of WorkloadRequests."""

    start = 0.0

    def __init__(self, description: str, requests: list[WorkloadRequest], seed: int) -> None:
        self.description = description
        self.notes: list[str] = []
        self.seed = seed
        self.last = requests[-1].arrival
        self.count = len(requests)
        self._requests = requests

    def requests(self, scale_rate: float = 1.0) -> Iterator[Asked]:
        return asked(scaled(self._requests, rate=scale_rate), self.seed)


def workload(
    settings: WorkloadSettings, seconds: float | None = None, num_requests: int | None = None
) -> Workload:
    """Read or draw the requests that arrive within `seconds`, at most `num_requests`.

    Raises ConfigError, also for a workload without an end.
    """
    for option, limit in (("--seconds", seconds), ("--num-requests", num_requests)):
        if limit is not None and not 0 < limit <= sys.maxsize:
            raise ConfigError(f"{option} is {limit}; it is above 0, and at most {sys.maxsize}")
    ends = num_requests is not None or settings.workload is named.Workload.TRACE
    if not ends and (seconds is None or settings.all_at_once):
        remedy = "--num-requests" if settings.all_at_once else "--seconds or --num-requests"
        raise ConfigError(f"workload {settings.workload} has no end: give {remedy}")
    source = settings.stream()
    if seconds is not None:
        source = takewhile(lambda request: request.arrival < seconds, source)
    requests = list(islice(source, num_requests))
    if not requests:
        raise ConfigError("the workload has no request within these limits: raise them")
    parts = [settings.described()]
    if seconds is not None:
        parts.append(f"first {seconds:g} s")
    if num_requests is not None:
        parts.append(f"first {num_requests} requests")
    return Workload(", ".join([*parts, f"seed {settings.seed}"]), requests, settings.seed)


def named_or_file(name: str) -> tuple[named.Workload, Path | None]:
    """A workload by its name, or the public trace in a file. Raises ConfigError."""
    if name in set(named.Workload) - {named.Workload.TRACE}:
        return named.Workload(name), None
    path = Path(name)
    if not path.is_file():
        known = ", ".join(sorted(set(named.Workload) - {named.Workload.TRACE}))
        raise ConfigError(f"workload {name} is no file, and none of {known}")
    return named.Workload.TRACE, path
