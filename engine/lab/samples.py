"""The lengths that allocators are compared on: drawn, read from a public trace, or from a recorded run.

A length is the number of tokens whose KV is stored. Of a request, the last token of the answer never
gets KV, so files of requests give prompt + output - 1.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from engine.core.config import ConfigError
from engine.events.records import Fork, RequestAdded, SequenceFinished, Step
from engine.events.trace import TraceReader
from engine.workloads import lengths as drawn
from engine.workloads.lengths import Lengths
from engine.workloads.traces import read_trace

COUNT = 2_000
LONGEST = 4_096
MOST_SEQUENCES = 1_000_000
_PROMPT_SHARE = 161 / (161 + 338)
"""Of the mean lengths in ShareGPT (arXiv 2309.06180, figure 11)."""


@dataclass(frozen=True)
class Sample:
    """Lengths with the name that tables and pages give them. left_out: those that were too long."""

    name: str
    lengths: tuple[Lengths, ...]
    left_out: int = 0

    @property
    def totals(self) -> list[int]:
        """Tokens of each sequence in the end."""
        return [prompt + output for prompt, output in self.lengths]

    def up_to(self, max_model_len: int) -> "Sample":
        """Without the sequences that are longer, as an engine refuses their requests."""
        kept = tuple(pair for pair in self.lengths if sum(pair) <= max_model_len)
        if not kept:
            raise ConfigError(
                f"none of the {len(self.lengths):,} lengths ({self.name}) is within max_model_len "
                f"{max_model_len:,}: raise it, or take shorter lengths"
            )
        return replace(self, lengths=kept, left_out=len(self.lengths) - len(kept))

    def within(self, tokens: int) -> "Sample":
        """The first sequences, at most `tokens` in all but always one."""
        kept, stored = 1, sum(self.lengths[0])
        while kept < len(self.lengths) and stored + sum(self.lengths[kept]) <= tokens:
            stored += sum(self.lengths[kept])
            kept += 1
        return replace(self, lengths=self.lengths[:kept])


def default_sample(count: int = COUNT, seed: int = 0) -> Sample:
    """Many short ones and a long tail: min(4096, exp of a normal of mean 5.5 and deviation 0.9).

    The same for a seed; with the defaults, 730,840 tokens. A third of each is prompt, as in ShareGPT.
    """
    draw = random.Random(seed)
    totals = [min(LONGEST, int(draw.lognormvariate(5.5, 0.9))) for _ in range(count)]
    return Sample("sample: lognormal, median 245 tokens", tuple(map(split, totals)))


def split(total: int) -> Lengths:
    """A length as prompt and output, in the proportion of ShareGPT's means; a prompt of 1 at least."""
    prompt = max(1, round(total * _PROMPT_SHARE))
    return Lengths(prompt, max(0, total - prompt))


def read_lengths(text: str, count: int = COUNT, seed: int = 0) -> Sample:
    """At most `count` lengths as the command line names them.

    `sample`; `fixed:PROMPT,OUTPUT`; `uniform:LEAST-MOST,LEAST-MOST` (prompt, output);
    `lognormal:MEAN,MEAN,SIGMA` (prompt, output); or a file: a public trace (see
    engine/workloads/traces.py), or a recorded run of Glasspool (.jsonl.zst), whose finished sequences
    count. Raises ConfigError, or TraceError for a damaged recording.
    """
    if not 1 <= count <= MOST_SEQUENCES:
        raise ConfigError(
            f"count is {count}; ask for at least 1 length, at most {MOST_SEQUENCES:,}"
        )
    if text == "sample":
        return default_sample(count, seed)
    name, _, numbers = text.partition(":")
    if name in _DRAWN:
        return Sample(text, tuple(islice(_drawn(text, name, numbers, seed), count)))
    path = Path(text)
    try:
        there = bool(text) and path.exists()
    except (OSError, ValueError):
        there = False
    if not there:
        raise ConfigError(
            f"{text or 'an empty text'} is neither a file nor a way to draw lengths: write sample, "
            "fixed:100,400, uniform:16-512,16-1024, lognormal:161,338,1.0, or name a trace file"
        )
    read = _recorded if path.name.endswith(".zst") else _public
    found = tuple(islice(read(path), count))
    if not found:
        raise ConfigError(f"{path} has no finished sequence: record a longer run")
    return Sample(path.name, found)


def _drawn(text: str, name: str, numbers: str, seed: int) -> Iterator[Lengths]:
    form, make = _DRAWN[name]
    try:
        return make(numbers.split(","), seed)
    except ValueError:
        raise ConfigError(f"{text} is no {name} draw: write it like {form}") from None


def _fixed(parts: list[str], seed: int) -> Iterator[Lengths]:
    prompt, output = map(_tokens, parts)
    return drawn.fixed(prompt, output)


def _uniform(parts: list[str], seed: int) -> Iterator[Lengths]:
    prompt, output = (tuple(map(_tokens, part.split("-"))) for part in parts)
    for bounds in (prompt, output):
        least, most = bounds
        if most < least:
            raise ValueError(bounds)
    return drawn.uniform(prompt, output, seed)


def _lognormal(parts: list[str], seed: int) -> Iterator[Lengths]:
    prompt, output, sigma = map(float, parts)
    if not (prompt >= 1 and output >= 1 and 0 <= sigma <= 5):
        raise ValueError(parts)
    return drawn.lognormal(prompt, output, sigma, seed)


def _tokens(text: str) -> int:
    tokens = int(text)
    if tokens < 1:
        raise ValueError(text)
    return tokens


_DRAWN: dict[str, tuple[str, Callable[[list[str], int], Iterator[Lengths]]]] = {
    "fixed": ("fixed:100,400 (prompt, output)", _fixed),
    "uniform": ("uniform:16-512,16-1024 (prompt, output)", _uniform),
    "lognormal": ("lognormal:161,338,1.0 (mean prompt, mean output, sigma 0 to 5)", _lognormal),
}


def _public(path: Path) -> Iterator[Lengths]:
    for request in read_trace(path):
        for output in request.outputs or (request.output_tokens,) * request.n:
            yield Lengths(request.prompt_tokens, output - 1)


def _recorded(path: Path) -> Iterator[Lengths]:
    """Sequences of a recorded run in the order in which they finished, whose prompt is known."""
    prompts: dict[int, int] = {}
    with TraceReader(path) as trace:
        for record in trace:
            if not isinstance(record, Step):
                continue
            for event in record.events:
                match event:
                    case RequestAdded():
                        prompts[event.sequence] = event.prompt_tokens
                    case Fork() if event.parent in prompts:
                        prompts[event.child] = prompts[event.parent]
                    case SequenceFinished() if event.sequence in prompts:
                        prompt = prompts.pop(event.sequence)
                        if event.output_tokens:
                            yield Lengths(prompt, event.output_tokens - 1)
