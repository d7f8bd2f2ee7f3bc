"""Where the requests of a simulated run come from: a file, a distribution, or a recorded run."""

from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Protocol

import msgspec

from engine.core.config import ConfigError
from engine.simulate.asked import Asked, asked
from engine.workloads import arrivals, lengths
from engine.workloads.request import WorkloadRequest, planned, scaled
from engine.workloads.traces import read_trace

GENERATED = ("fixed", "uniform", "lognormal")
MOST_REQUESTS = 10_000_000


class Source(Protocol):
    """Requests that can be asked again for every run.

    notes: what a reader of the figures must know, a sentence each.
    start, last: seconds of the simulated clock, of the run's start and of the last arrival.
    """

    description: str
    notes: list[str]
    start: float
    last: float
    count: int

    def requests(self, rate_scale: float = 1.0) -> Iterator[Asked]:
        """The requests in order of arrival, `rate_scale` times as often."""


class WorkloadSettings(msgspec.Struct, frozen=True):
    """Options of a workload. Lengths are `256`, or `64-512` where the workload draws between two.

    name: a file, or one of GENERATED. rate: requests a second of a generated one. rate_scale,
    length_scale: of any. seconds, num_requests: where to stop.
    """

    name: str
    seed: int = 0
    rate: float = 1.0
    prompt_tokens: str = "256"
    output_tokens: str = "128"
    sigma: float = 1.0
    rate_scale: float = 1.0
    length_scale: float = 1.0
    seconds: float | None = None
    num_requests: int | None = None


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

    def requests(self, rate_scale: float = 1.0) -> Iterator[Asked]:
        return asked(scaled(self._requests, rate=rate_scale), self.seed)


def workload(settings: WorkloadSettings) -> Workload:
    """Read or draw the requests. Raises ConfigError."""
    for name in ("rate", "rate_scale", "length_scale"):
        if not 0 < getattr(settings, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(settings, name)}; it is a number above 0")
    for name in ("seconds", "num_requests"):
        limit = getattr(settings, name)
        if limit is not None and limit <= 0:
            raise ConfigError(f"{name} is {limit}; it is above 0")
    generated = settings.name in GENERATED
    if generated and settings.seconds is None and settings.num_requests is None:
        raise ConfigError(f"workload {settings.name} has no end: give --seconds or --num-requests")
    source = _generated(settings) if generated else _file(settings)
    source = scaled(source, settings.rate_scale, settings.length_scale)
    if settings.seconds is not None:
        source = takewhile(lambda request: request.arrival < settings.seconds, source)
    requests = list(islice(source, settings.num_requests or MOST_REQUESTS))
    if not requests:
        raise ConfigError(f"workload {settings.name} has no request within its limits: raise them")
    return Workload(_description(settings), requests, settings.seed)


def _file(settings: WorkloadSettings) -> Iterator[WorkloadRequest]:
    path = Path(settings.name)
    if not path.exists():
        raise ConfigError(
            f"workload {settings.name} is no file, and none of {', '.join(GENERATED)}"
        )
    return read_trace(path)


def _generated(settings: WorkloadSettings) -> Iterator[WorkloadRequest]:
    prompt = _span("prompt_tokens", settings.prompt_tokens)
    output = _span("output_tokens", settings.output_tokens)
    seed = settings.seed
    if settings.name == "uniform":
        drawn = lengths.uniform(prompt, output, seed)
    elif prompt[0] != prompt[1] or output[0] != output[1]:
        raise ConfigError(f"workload {settings.name} takes one length each; uniform takes two")
    elif settings.name == "fixed":
        drawn = lengths.fixed(prompt[0], output[0])
    else:
        drawn = lengths.lognormal(prompt[0], output[0], settings.sigma, seed)
    return planned(arrivals.poisson(settings.rate, seed), drawn)


def _span(name: str, text: str) -> tuple[int, int]:
    least, _, most = text.partition("-")
    try:
        span = int(least), int(most or least)
    except ValueError:
        span = (0, 0)
    if not 1 <= span[0] <= span[1]:
        raise ConfigError(f"{name} is {text}; write a length like 256, or a range like 64-512")
    return span


def _description(settings: WorkloadSettings) -> str:
    """What was asked, so that the run can be repeated. Files by name: where they lie tells nothing."""
    parts = [Path(settings.name).name]
    if settings.name in GENERATED:
        parts.append(
            f"{settings.rate:g}/s, {settings.prompt_tokens} + {settings.output_tokens} tokens"
        )
        if settings.name == "lognormal":
            parts.append(f"sigma {settings.sigma:g}")
    for name in ("rate_scale", "length_scale"):
        if getattr(settings, name) != 1:
            parts.append(f"{name} {getattr(settings, name):g}")
    if settings.seconds is not None:
        parts.append(f"first {settings.seconds:g} s")
    if settings.num_requests is not None:
        parts.append(f"first {settings.num_requests} requests")
    return ", ".join([*parts, f"seed {settings.seed}"])
