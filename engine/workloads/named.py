"""Workloads by name: the one place where a name and options become requests, or a one-line error."""

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from engine.core.config import ConfigError
from engine.workloads import arrivals, lengths, patterns
from engine.workloads.request import MOST_TOKENS, WorkloadRequest, planned, rescheduled, scaled
from engine.workloads.traces import read_trace


class Workload(StrEnum):
    """What the requests are like. Lengths are lognormal but for the first two and a trace's."""

    FIXED = "fixed"
    UNIFORM = "uniform"
    LOGNORMAL = "lognormal"
    SHARED_PROMPT = "shared-prompt"
    MULTI_TURN = "multi-turn"
    PARALLEL = "parallel"
    BEAM = "beam"
    LONG_CONTEXT = "long-context"
    BURSTS = "bursts"
    TRACE = "trace"


class Parameter(NamedTuple):
    """A number that one workload has beyond those of all; `whole` where it must be."""

    default: float
    meaning: str
    least: float
    most: float = 1_000_000
    whole: bool = True


PARAMETERS: Mapping[Workload, Mapping[str, Parameter]] = MappingProxyType(
    {
        Workload.SHARED_PROMPT: {
            "prompts": Parameter(4, "system prompts", 1),
            "prompt_len": Parameter(
                1024, "tokens of each, before the request's own", 1, MOST_TOKENS
            ),
            "share": Parameter(0.9, "share of the requests that have one", 0, 1, whole=False),
        },
        Workload.MULTI_TURN: {
            "turns": Parameter(5, "requests of a conversation", 1, 1000),
            "think": Parameter(10, "mean seconds from a turn to the next", 0.001, whole=False),
        },
        Workload.PARALLEL: {"n": Parameter(4, "answers to each prompt", 1, 128)},
        Workload.BEAM: {"width": Parameter(4, "beams of each request", 1, 128)},
        Workload.LONG_CONTEXT: {
            "long_len": Parameter(100_000, "tokens of a long prompt", 1, MOST_TOKENS),
            "every": Parameter(100, "one request in so many is long", 1),
        },
        Workload.BURSTS: {
            "on": Parameter(5, "seconds in which requests come", 0.001, whole=False),
            "off": Parameter(15, "seconds in which none does", 0, whole=False),
        },
    }
)


class WorkloadSettings(msgspec.Struct, kw_only=True):
    """A workload by name; the same settings give the same requests.

    input_len, output_len: tokens of prompt and output, or their mean. range_ratio: uniform lengths
    lie within mean * (1 ± this). sigma: standard deviation of a lognormal length's logarithm. trace:
    the file of workload trace. scale_rate, scale_length: applied to all. request_rate: requests a
    second on average; inf: all at once; None: a trace's own times, and inf for others. parameters:
    those of PARAMETERS that differ from their default. Raises ConfigError for what cannot work; the
    message names the command line's option.
    """

    workload: Workload = Workload.FIXED
    input_len: int = 256
    output_len: int = 128
    range_ratio: float = 0.5
    sigma: float = 1.0
    trace: Path | None = None
    scale_rate: float = 1.0
    scale_length: float = 1.0
    request_rate: float | None = None
    seed: int = 0
    parameters: dict[str, float] = {}

    def __post_init__(self) -> None:
        for option in ("input_len", "output_len"):
            tokens = getattr(self, option)
            if tokens < 1:
                raise ConfigError(f"{_flag(option)} is {tokens}; it must be at least 1")
            if tokens > MOST_TOKENS:
                raise ConfigError(f"{_flag(option)} is {tokens}; it is at most {MOST_TOKENS:,}")
        for option in ("scale_rate", "scale_length", "request_rate"):
            value = getattr(self, option)
            if value is not None and not value > 0:
                raise ConfigError(f"{_flag(option)} is {value:g}; it must be above 0")
        for option in ("scale_rate", "scale_length"):
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
        self._check_times()
        for name, value in self.parameters.items():
            _check_parameter(self.workload, name, value)

    def _check_times(self) -> None:
        if self.workload in (Workload.MULTI_TURN, Workload.BURSTS) and self.all_at_once:
            raise ConfigError(
                f"{self.workload} spreads requests over time: give a --request-rate, such as 4"
            )
        if self.scale_rate == 1:
            return
        if self.workload is Workload.TRACE and self.request_rate is not None:
            raise ConfigError("--scale-rate scales a trace's own times: leave --request-rate out")
        if self.all_at_once:
            raise ConfigError(
                "--scale-rate has no times to scale, all requests come at once: give a "
                "--request-rate too"
            )

    @property
    def all_at_once(self) -> bool:
        """Whether nothing spaces the requests out."""
        if self.request_rate is None:
            return self.workload is not Workload.TRACE
        return math.isinf(self.request_rate)

    def parameter(self, name: str) -> float:
        """A parameter of this workload, given or by default."""
        return self.parameters.get(name, PARAMETERS[self.workload][name].default)

    def stream(self) -> Iterator[WorkloadRequest]:
        """The requests in order of arrival: endless, but for a trace.

        Raises WorkloadError, when the place is reached, for a trace that cannot be read.
        """
        return scaled(self._unscaled(), self.scale_rate, self.scale_length)

    def _unscaled(self) -> Iterator[WorkloadRequest]:
        if self.workload is Workload.TRACE:
            requests = read_trace(self.trace)
            return requests if self.request_rate is None else rescheduled(requests, self._times())
        if self.workload is Workload.MULTI_TURN:
            turns = int(self.parameter("turns"))
            starts = arrivals.poisson(self.request_rate / turns, self.seed)
            return patterns.multi_turn(
                starts, self._lengths(), turns, self.parameter("think"), self.seed
            )
        requests = planned(self._times(), self._lengths())
        match self.workload:
            case Workload.SHARED_PROMPT:
                prompts, prompt_len = (
                    int(self.parameter("prompts")),
                    int(self.parameter("prompt_len")),
                )
                share = self.parameter("share")
                return patterns.shared_prompt(requests, prompts, prompt_len, share, self.seed)
            case Workload.PARALLEL:
                return patterns.completions(requests, int(self.parameter("n")))
            case Workload.BEAM:
                return patterns.completions(requests, int(self.parameter("width")), True)
            case Workload.LONG_CONTEXT:
                long_len, every = int(self.parameter("long_len")), int(self.parameter("every"))
                return patterns.long_context(requests, long_len, every)
            case _:
                return requests

    def _times(self) -> Iterator[float]:
        if self.all_at_once:
            return arrivals.at_once()
        if self.workload is Workload.BURSTS:
            on, off = self.parameter("on"), self.parameter("off")
            return arrivals.bursts(self.request_rate, on, off, self.seed)
        return arrivals.poisson(self.request_rate, self.seed)

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
        else:
            what = f"{self.workload} {self.input_len:,} in, {self.output_len:,} out"
        for name in PARAMETERS.get(self.workload, {}):
            what += f", {name} {self.parameter(name):,g}"
        if self.scale_length != 1:
            what += f", lengths × {self.scale_length:g}"
        if self.all_at_once:
            return what
        when = "its own times" if self.request_rate is None else f"{self.request_rate:g} requests/s"
        return f"{what}, {when}" + (f" × {self.scale_rate:g}" if self.scale_rate != 1 else "")


def read_parameters(workload: Workload, texts: list[str]) -> dict[str, float]:
    """'turns=4' and the like, as a command line gives them. Raises ConfigError."""
    parameters = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            parameters[name] = float(number)
        except ValueError:
            raise ConfigError(f"{text} is no parameter: write it like turns=4") from None
        _check_parameter(workload, name, parameters[name])
    return parameters


def parameters_help() -> str:
    """All parameters with their defaults, a sentence a workload, for a command's help."""
    return " ".join(
        f"{workload}: "
        + "; ".join(f"{name}={p.default:g} {p.meaning}" for name, p in parameters.items())
        + "."
        for workload, parameters in PARAMETERS.items()
    )


def _check_parameter(workload: Workload, name: str, value: float) -> None:
    known = PARAMETERS.get(workload, {})
    if name not in known:
        have = ", ".join(known) or "none"
        raise ConfigError(f"workload {workload} has no parameter {name}; it has {have}")
    parameter = known[name]
    right = parameter.least <= value <= parameter.most
    if not right or (parameter.whole and value != int(value)):
        kind = "a whole number" if parameter.whole else "a number"
        raise ConfigError(
            f"{name} is {value:g}; it is {kind} from {parameter.least:g} to {parameter.most:,}"
        )


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
