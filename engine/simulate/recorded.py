"""The workload of a recorded run: who came when, asked what, and got how much; what was equal.

Lengths, arrivals and n are in the records. Which tokens were equal is known from the hashes of full
blocks (contents.py) or, where text was recorded, from the text. What cannot be known is told in
`notes`, a sentence each.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from engine.core.config import ConfigError, EngineConfig
from engine.events.pool_state import PoolState
from engine.events.records import (
    FinishReason,
    Fork,
    Gap,
    Header,
    Keyframe,
    RequestAdded,
    RequestRejected,
    RequestRow,
    Sampled,
    SequenceFinished,
    Step,
)
from engine.events.trace import TraceReader
from engine.simulate.asked import Asked
from engine.simulate.contents import FEWEST_HASH_BITS, BlockNames, Contents
from engine.simulate.figures import Figures, FiguresFold
from engine.simulate.recording import Anchor, Shape
from engine.simulate.settings import configured, core_names


class _Sequence(msgspec.Struct):
    """`length` is None until it ends."""

    sequence: int
    length: int | None = None
    text: list[str] = []


class _Request(msgspec.Struct):
    request: str
    prompt_tokens: int
    n: int
    max_tokens: int
    arrival: float
    sequences: list[_Sequence]
    text: list[str] | None = None
    beams: bool = False
    aborted: bool = False


class Recorded:
    """A Source made of a trace, with the configuration, the model and the figures of the recorded run."""

    def __init__(self, header: Header, requests: list[Asked], start: float) -> None:
        self.header = header
        self.start = start
        self.count = len(requests)
        self.last = max(request.arrival for request in requests)
        self.description = ""
        self.notes: list[str] = []
        self.figures: Figures | None = None
        self._requests = requests

    @property
    def shape(self) -> Shape:
        header = self.header
        return Shape(
            header.model,
            header.dtype,
            header.bytes_per_block // header.block_size,
            header.num_layers,
            header.num_kv_heads,
            header.head_dim,
        )

    @property
    def anchor(self) -> Anchor:
        return Anchor(self.header.wall_time, self.header.monotonic)

    def requests(self, scale_rate: float = 1.0) -> Iterator[Asked]:
        for request in self._requests:
            arrival = self.start + (request.arrival - self.start) / scale_rate
            yield msgspec.structs.replace(request, arrival=arrival)


def read_recorded(path: Path) -> Recorded:
    """Raises TraceError for a trace that can't be read, ConfigError where nothing can be replayed."""
    with TraceReader(path) as reader:
        walk = _Walk(reader.header)
        state = PoolState(reader.header)
        for record, state in reader.fold():
            walk.add(record, state)
        if reader.cut_off:
            walk.notes.append(f"{reader.cut_off}.")
        recorded = walk.result(state)
    if recorded is None:
        raise ConfigError(f"{path} has no request that was answered: there is nothing to replay")
    recorded.description = f"what {path.name} was asked"
    return recorded


def recorded_config(header: Header, changes: Mapping[str, Any]) -> EngineConfig:
    """The configuration of the recorded engine, with changes by users' names.

    Raises ConfigError where the header lacks something that `changes` does not say.
    """
    fields = {
        name: header.config[name]
        for name in EngineConfig.__struct_fields__
        if name in header.config
    }
    fields = {**core_names(changes), **fields}
    fields |= {"block_size": header.block_size, "num_blocks": header.num_blocks}
    needed = ("max_model_len", "max_num_seqs", "max_num_batched_tokens")
    lacking = [name for name in needed if name not in fields]
    if lacking:
        options = " ".join(f"--{name.replace('_', '-')} N" for name in lacking)
        raise ConfigError(f"the trace does not say {', '.join(lacking)}: add {options}")
    try:
        return configured(msgspec.convert(fields, EngineConfig), changes)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the trace's configuration can't be used: {error}") from None


class _Walk:
    """One pass over the records."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.notes: list[str] = []
        bits = header.config.get("prefix_hash_bits", 64)
        hashed = "block_hashes" in header.knows and "physical_blocks" in header.knows
        self._caching = hashed and header.config.get("enable_prefix_caching") is not False
        infers = self._caching and isinstance(bits, int) and bits >= FEWEST_HASH_BITS
        self._names = BlockNames(header.block_size, infers)
        self._requests: dict[str, _Request] = {}
        self._done: list[_Request] = []
        self._sequences: dict[int, tuple[_Request, _Sequence]] = {}
        self._figures: FiguresFold | None = None
        self._start = 0.0
        self._idle = True
        self._loads = True
        self._lost: Counter[str] = Counter()

    def add(self, record: Keyframe | Step | Gap, state: PoolState) -> None:
        match record:
            case Keyframe() if self._loads:
                self._load(record)
            case Gap():
                self._loads = True
                self._lost["gap"] += record.count
            case Step():
                self._step(record)
                self._figures.add(record, state.active_blocks / state.num_blocks, state.tally.waits)

    def _load(self, keyframe: Keyframe) -> None:
        self._loads = False
        if self._figures is None:
            self._start = keyframe.time
            totals = msgspec.structs.replace(
                keyframe.totals, preemptions=dict(keyframe.totals.preemptions)
            )
            self._figures = FiguresFold(keyframe.time, totals)
        self._names.load(keyframe)
        self._idle = not keyframe.sequences
        for row in keyframe.requests:
            if row.request not in self._requests:
                self._begin(row, row.arrived)
        for row in keyframe.sequences:
            request = self._requests[row.request]
            if row.sequence not in self._sequences:
                sequence = self._join(request, row.sequence)
                if row.text is not None:
                    request.text = row.text[: request.prompt_tokens]
                    sequence.text = row.text[request.prompt_tokens :]

    def _step(self, step: Step) -> None:
        names = self._names
        for event in step.events:
            names.apply(event)
            match event:
                case RequestAdded():
                    # What wakes an idle engine is served by the step that it wakes, with all that
                    # came until that began.
                    request = self._begin(event, step.time if self._idle else event.arrived)
                    request.text = event.prompt_text
                    self._join(request, event.sequence)
                case Fork(parent, child):
                    request, forked = self._sequences[parent]
                    self._join(request, child).text = list(forked.text)
                    request.beams |= len(request.sequences) > request.n
                case Sampled(sequence, text):
                    self._sequences[sequence][1].text.append(text)
                case SequenceFinished(sequence, reason, output_tokens):
                    request, ended = self._sequences[sequence]
                    ended.length = output_tokens
                    request.beams |= reason is FinishReason.PRUNED
                    request.aborted |= reason is FinishReason.ABORT
                case RequestRejected():
                    self._lost["rejected"] += 1
        queues = step.queues
        self._idle = not (queues.waiting or queues.running or queues.preempted)

    def _begin(self, row: RequestAdded | RequestRow, arrival: float) -> _Request:
        request = _Request(row.request, row.prompt_tokens, row.n, row.max_tokens, arrival, [])
        self._requests[row.request] = request
        self._done.append(request)
        return request

    def _join(self, request: _Request, number: int) -> _Sequence:
        sequence = _Sequence(number)
        request.sequences.append(sequence)
        self._sequences[number] = (request, sequence)
        return sequence

    def result(self, state: PoolState) -> Recorded | None:
        unfinished = set(state.sequences)
        contents = Contents(self.header.block_size)
        words: dict[str, int] = {}
        found, names = [], Counter()
        for request in self._done:
            for sequence in request.sequences:
                if sequence.length is None:
                    known = sequence.sequence in unfinished
                    sequence.length = state.tally.output_tokens(sequence.sequence) if known else 0
                    self._lost["unfinished"] += 1
            lengths = [sequence.length for sequence in request.sequences]
            if not any(lengths):
                self._lost["unanswered"] += 1
                continue
            self._lost["aborted"] += request.aborted
            self._lost["beams"] += request.beams
            names[request.request] += 1
            found.append(self._asked(request, len(found), names, contents, words))
        if not found:
            return None
        recorded = Recorded(self.header, found, self._start)
        recorded.notes = self.notes + self._told(bool(words))
        recorded.figures = self._figures.result(state.totals)
        return recorded

    def _asked(
        self, request: _Request, number: int, names: Counter, contents: Contents, words: dict
    ) -> Asked:
        lengths = [max(1, sequence.length) for sequence in request.sequences[: request.n]]
        lengths += [max(lengths)] * (request.n - len(lengths))
        prompt: Sequence[int]
        outputs: list[Sequence[int]]
        called = [self._names.of(sequence.sequence) for sequence in request.sequences[: request.n]]
        prompt, outputs = contents.tokens(
            f"request {number}", called, request.prompt_tokens, lengths
        )
        if request.text is not None:
            # Text and bytes must not be taken for each other: words are numbered from beyond them.
            def ids(text: list[str]) -> list[int]:
                return [words.setdefault(word, 256 + len(words)) for word in text]

            prompt = ids(request.text)
            for place, sequence in enumerate(request.sequences[: request.n]):
                said = ids(sequence.text[: lengths[place]])
                outputs[place] = [*said, *outputs[place][len(said) :]]
        again = names[request.request]
        return Asked(
            request_id=request.request if again == 1 else f"{request.request}.{again}",
            arrival=max(self._start, request.arrival),
            prompt=prompt,
            outputs=() if request.beams else tuple(outputs),
            max_tokens=max(lengths) if request.beams else max(request.max_tokens, *lengths),
            seed=number,
            n=request.n,
            use_beam_search=request.beams,
        )

    def _told(self, text: bool) -> list[str]:
        lost = self._lost
        notes = []
        if text:
            notes.append("Equal tokens are known from the recorded text.")
        elif self._caching:
            notes.append(
                "Equal tokens are known by full blocks of "
                f"{self.header.block_size}: what was equal within a block is not."
            )
        else:
            notes.append(
                "The run had no prefix caching, and no text: nothing is known to be equal, so "
                "that prefix hits are a lower bound."
            )
        if str(self.header.config.get("policy", "fcfs")) != "fcfs":
            notes.append("Priorities are not in a trace: all requests have the same.")
        for key, sentence in (
            ("gap", "Records missing in gaps: {}. What came and went in them is not asked again."),
            ("rejected", "Refused: {}. They are not asked again: what they asked is not recorded."),
            ("unanswered", "Without a single output token: {}. These requests are left out."),
            ("unfinished", "Sequences that had not ended when the trace did: {}. They get as many tokens "
             "as they had by then."),
            ("aborted", "Aborted: {}. These requests end after as many tokens as they had by then."),
            ("beams", "Beam searches: {}. They are made up, as long as the longest beam."),
        ):  # fmt: skip
            if lost[key]:
                notes.append(sentence.format(f"{lost[key]:,}"))
        return notes
