"""What a `bench serve` run is asked to do, checked, and the requests that follow from it."""

import math
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from engine.bench.serve_prompts import Endpoint
from engine.core.config import ConfigError
from engine.workloads import arrivals, lengths
from engine.workloads.request import WorkloadRequest, planned, rescheduled, scaled
from engine.workloads.traces import read_trace


class Workload(StrEnum):
    """Where the lengths come from."""

    FIXED = "fixed"
    UNIFORM = "uniform"
    LOGNORMAL = "lognormal"
    TRACE = "trace"


class ServeBenchSettings(msgspec.Struct, kw_only=True):
    """The options of a run; names as in vLLM's `bench serve`, where it has them.

    url: without /v1. request_rate: requests a second, inf sends all at once; None takes a trace's own
    times, and is inf for other workloads. Raises ConfigError for options that cannot work.
    """

    url: str
    endpoint: Endpoint
    model: str | None
    workload: Workload
    input_len: int
    output_len: int
    range_ratio: float
    sigma: float
    trace: Path | None
    scale_rate: float
    scale_length: float
    num_prompts: int
    request_rate: float | None
    max_concurrency: int | None
    seed: int
    ignore_eos: bool
    timeout: float

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/").removesuffix("/v1")
        if not self.url.startswith(("http://", "https://")) or not _host(self.url):
            raise ConfigError(
                f"{self.url} is no server's address: write it like http://127.0.0.1:8000"
            )
        for option in ("input_len", "output_len", "num_prompts", "max_concurrency"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ConfigError(f"{_flag(option)} is {value}; it must be at least 1")
        for option in ("scale_rate", "scale_length", "request_rate", "timeout"):
            value = getattr(self, option)
            if value is not None and not value > 0:
                raise ConfigError(f"{_flag(option)} is {value:g}; it must be above 0")
        for option in ("scale_rate", "scale_length", "timeout"):
            if math.isinf(getattr(self, option)):
                raise ConfigError(f"{_flag(option)} is inf; give a number")
        if not 0 <= self.range_ratio < 1:
            raise ConfigError(
                f"--range-ratio is {self.range_ratio:g}; it lies between 0 and below 1"
            )
        if not 0 <= self.sigma <= 5:
            raise ConfigError(f"--sigma is {self.sigma:g}; it lies between 0 and 5")
        if (self.trace is not None) != (self.workload is Workload.TRACE):
            raise ConfigError(
                "--workload trace and --trace FILE belong together: give both or none"
            )
        if self.trace is None and (self.scale_rate, self.scale_length) != (1, 1):
            raise ConfigError(
                "--scale-rate and --scale-length are for a trace: set --request-rate, --input-len "
                "and --output-len instead"
            )
        if self.request_rate is not None and self.scale_rate != 1:
            raise ConfigError("--scale-rate scales a trace's own times: leave --request-rate out")

    @property
    def all_at_once(self) -> bool:
        """Whether nothing spaces the requests out."""
        if self.request_rate is None:
            return self.workload is not Workload.TRACE
        return math.isinf(self.request_rate)

    @property
    def closed_loop(self) -> bool:
        """Whether a request is sent because another one ended."""
        return self.all_at_once and self.max_concurrency is not None

    def requests(self) -> list[WorkloadRequest]:
        """All requests of the run. Raises WorkloadError for a trace that cannot be read."""
        found = list(islice(self._endless(), self.num_prompts))
        if not found:
            raise ConfigError(f"{self.trace} has no request with output tokens: give another trace")
        return found

    def _endless(self) -> Iterator[WorkloadRequest]:
        if self.all_at_once:
            times = arrivals.at_once()
        elif self.request_rate is not None:
            times = arrivals.poisson(self.request_rate, self.seed)
        else:
            return scaled(read_trace(self.trace), self.scale_rate, self.scale_length)
        if self.trace is not None:
            requests = scaled(read_trace(self.trace), length=self.scale_length)
            return rescheduled(requests, times)
        return planned(times, self._lengths())

    def _lengths(self) -> Iterator[lengths.Lengths]:
        if self.workload is Workload.FIXED:
            return lengths.fixed(self.input_len, self.output_len)
        if self.workload is Workload.UNIFORM:
            return lengths.uniform(
                self._range(self.input_len), self._range(self.output_len), self.seed
            )
        return lengths.lognormal(self.input_len, self.output_len, self.sigma, self.seed)

    def _range(self, mean: int) -> tuple[int, int]:
        low, high = mean * (1 - self.range_ratio), mean * (1 + self.range_ratio)
        return max(1, math.ceil(low)), math.floor(high)

    def described(self) -> str:
        """The workload in words, for a title."""
        if self.workload is Workload.TRACE:
            what = self.trace.name
            if self.scale_length != 1:
                what += f", lengths × {self.scale_length:g}"
        else:
            what = f"{self.workload} {self.input_len:,} in, {self.output_len:,} out"
        if self.all_at_once:
            when = "" if self.closed_loop else ", all at once"
        elif self.request_rate is not None:
            when = f", {self.request_rate:g} requests/s"
        else:
            when = ", its own times" + (f" × {self.scale_rate:g}" if self.scale_rate != 1 else "")
        most = f", at most {self.max_concurrency:,} in flight" if self.max_concurrency else ""
        return f"{what}{when}{most}"


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
