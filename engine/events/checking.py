"""Check a recorded trace against every rule that its records can show.

    for record in trace:  rules look at each event  ->  PoolState applies it  ->  rules look at the end

The first rule that does not hold ends the check: what follows a broken record means nothing.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.events.checks import check_state
from engine.events.index import Progress
from engine.events.pool_contents import FoldError
from engine.events.pool_state import PoolState
from engine.events.records import AnyEvent, Gap, Header, Keyframe, Step
from engine.events.rules.blocks import BlockRules
from engine.events.rules.books import BookRules
from engine.events.rules.broken import RULES, BrokenRule
from engine.events.rules.sequences import SequenceRules
from engine.events.trace import TraceReader

RECORDS_PER_TELL = 256


class Fault(msgspec.Struct, frozen=True):
    """The first record that breaks a rule. `line` is its place in the file."""

    rule: int
    text: str
    seq: int
    step: int
    line: int

    def __str__(self) -> str:
        return (
            f"step {self.step}, record {self.seq} (line {self.line}): {self.text}. "
            f"Rule {self.rule}: {RULES[self.rule]}"
        )


class Report(msgspec.Struct, frozen=True):
    """What a check found. Rules that the producer does not tell enough for are in `unchecked`, with why.

    `seconds` is the producer's time from the first keyframe to the last record. `left_out` counts
    the step records in gaps. `missing` says what a cut-off trace lacks.
    """

    fault: Fault | None
    steps: int
    records: int
    events: int
    keyframes: int
    left_out: int
    seconds: float
    checked: list[int]
    unchecked: dict[int, str]
    missing: str | None


class TraceChecker:
    """Follows records one by one. `state` is the fold up to the last; `unchecked` as in Report."""

    def __init__(self, header: Header) -> None:
        self.state = PoolState(header)
        self.unchecked = unchecked_rules(header)
        self._books = BookRules(self.state)
        self._sequences = SequenceRules(self.state)
        self._blocks = BlockRules(self.state)
        # The books come last: what they miss is mostly what another rule can name better.
        self._rules = (self._blocks, self._sequences, self._books)
        self._handlers: dict[type[AnyEvent], list[Callable[[AnyEvent], None]]] = {}
        for rules in self._rules:
            for kind, handler in rules.handlers.items():
                self._handlers.setdefault(kind, []).append(handler)

    def apply(self, record: Keyframe | Step | Gap) -> BrokenRule | None:
        """Check and fold one record; returns the rule that it breaks, and then is not to be used."""
        try:
            match record:
                case Step():
                    self.state.apply(record, self._check)
                    for rules in self._rules:
                        rules.end(record)
                case Keyframe() if self.state.complete:
                    self._books.keyframe(record)
                case Keyframe():
                    self.state.apply(record)
                    for rules in reversed(self._rules):
                        rules.load()
                case Gap():
                    self._books.gap(record)
                    self.state.apply(record)
        except BrokenRule as broken:
            return broken
        except FoldError as error:
            return BrokenRule(19, str(error))
        return None

    def end(self) -> BrokenRule | None:
        """No record follows: count the whole pool once more."""
        if self.state.complete:
            for fault in check_state(self.state):
                return BrokenRule(1, fault)
        return None

    def _check(self, event: AnyEvent) -> None:
        """Ahead of an event's effect."""
        if self._sequences.expected:
            self._sequences.meet(event)
        if self._blocks.evicted is not None:
            self._blocks.meet(event)
        for handler in self._handlers.get(type(event), ()):
            handler(event)


def check_trace(path: Path | str, progress: Progress = lambda done, total: None) -> Report:
    """Check a whole trace, in memory bounded by its pool and its unfinished requests.

    Raises TraceError where the file is no trace or is damaged.
    """
    records = steps = events = keyframes = left_out = 0
    first_time: float | None = None
    fault = None
    with TraceReader(path) as reader:
        size = reader.size
        checker = TraceChecker(reader.header)
        state = checker.state
        for record in reader:
            records += 1
            broken = checker.apply(record)
            if broken is not None:
                fault = _fault(broken, record, reader)
                break
            match record:
                case Step():
                    steps += record.tokens.total > 0
                    events += len(record.events)
                case Keyframe():
                    keyframes += 1
                case Gap():
                    left_out += record.count
            if first_time is None:
                first_time = state.time
            if records % RECORDS_PER_TELL == 0:
                progress(reader.position, size)
        else:
            broken = checker.end()
            if broken is not None:
                fault = Fault(broken.rule, broken.text, state.seq, state.step, reader.line)
        progress(size, size)
        return Report(
            fault=fault,
            steps=steps,
            records=records,
            events=events,
            keyframes=keyframes,
            left_out=left_out,
            seconds=state.time - (state.time if first_time is None else first_time),
            checked=[rule for rule in RULES if rule not in checker.unchecked],
            unchecked=checker.unchecked,
            missing=reader.cut_off,
        )


def unchecked_rules(header: Header) -> dict[int, str]:
    """The rules for which this producer does not tell enough, and what is lacking."""
    unchecked: dict[int, str] = {}
    if "physical_blocks" not in header.knows:
        unchecked |= dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9, 10, 11), "physical_blocks")
    elif "block_hashes" not in header.knows:
        unchecked |= dict.fromkeys((9, 10, 11), "block_hashes")
    if not {"max_num_batched_tokens", "max_num_seqs"} <= header.config.keys():
        unchecked[12] = "max_num_batched_tokens and max_num_seqs"
    if header.config.get("policy") != "fcfs":
        unchecked[14] = "priorities of requests"
    return unchecked


def _fault(broken: BrokenRule, record: Keyframe | Step | Gap, reader: TraceReader) -> Fault:
    """Where in the run and in the file: a gap stands behind the record that it names."""
    seq = record.after if isinstance(record, Gap) else record.seq
    step = -1 if isinstance(record, Gap) else record.step
    return Fault(broken.rule, broken.text, seq, step, reader.line)
