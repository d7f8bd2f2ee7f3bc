"""What a `bench serve` run is asked to do, checked: a workload, and where and how it is sent."""

import math
from itertools import islice
from urllib.parse import urlsplit

from engine.bench.serve_prompts import Endpoint
from engine.core.config import ConfigError
from engine.workloads.named import Workload, WorkloadSettings
from engine.workloads.request import WorkloadRequest


class ServeBenchSettings(WorkloadSettings, kw_only=True):
    """The options of a run; names as in vLLM's `bench serve`, where it has them.

    url: without /v1. Raises ConfigError for options that cannot work.
    """

    url: str
    endpoint: Endpoint
    model: str | None
    num_prompts: int
    max_concurrency: int | None
    ignore_eos: bool
    timeout: float

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/").removesuffix("/v1")
        if not self.url.startswith(("http://", "https://")) or not _host(self.url):
            raise ConfigError(
                f"{self.url} is no server's address: write it like http://127.0.0.1:8000"
            )
        for option in ("num_prompts", "max_concurrency"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ConfigError(f"--{option.replace('_', '-')} is {value}; it must be at least 1")
        if not self.timeout > 0:
            raise ConfigError(f"--timeout is {self.timeout:g}; it must be above 0")
        if math.isinf(self.timeout):
            raise ConfigError("--timeout is inf; give a number")
        super().__post_init__()

    @property
    def closed_loop(self) -> bool:
        """Whether a request is sent because another one ended."""
        return self.all_at_once and self.max_concurrency is not None

    @property
    def streamed(self) -> bool:
        """Whether answers come token by token. Servers give those of a beam search whole."""
        return self.workload is not Workload.BEAM

    def requests(self) -> list[WorkloadRequest]:
        """All requests of the run. Raises WorkloadError for a trace that cannot be read."""
        found = list(islice(self.stream(), self.num_prompts))
        if not found:
            raise ConfigError(f"{self.trace} has no request with output tokens: give another trace")
        return found

    def described(self) -> str:
        """The workload and how it is sent in words, for a title."""
        when = ", all at once" if self.all_at_once and not self.closed_loop else ""
        most = f", at most {self.max_concurrency:,} in flight" if self.max_concurrency else ""
        return super().described() + when + most


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
