"""What an engine's pool really held at one moment: read from a PoolState, live or of a trace."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from engine.core.config import ConfigError
from engine.events import PoolState, TraceReader
from engine.events.records import SequenceStatus, Step

RECORDS_PER_TELL = 256


class Observation(msgspec.Struct, frozen=True):
    """One moment of an engine.

    bytes_per_block: 0 where the engine has no model. watermark: blocks that stay free when a request
    starts beside others. max_num_seqs: None where the engine does not tell. tokens, entries: with KV,
    and block table entries, of each running sequence, in the same order. active: blocks that they
    hold, shared ones once. waiting: sequences that wait, preempted ones too.
    """

    engine: str
    model: str
    seq: int
    step: int
    block_size: int
    num_blocks: int
    bytes_per_block: int
    watermark: int
    max_num_seqs: int | None
    tokens: tuple[int, ...]
    entries: tuple[int, ...]
    active: int
    waiting: int

    @property
    def running(self) -> int:
        return len(self.tokens)

    @property
    def mean_tokens(self) -> float:
        """Of the running sequences, of which there must be one."""
        return sum(self.tokens) / self.running

    def percentile(self, percent: int) -> int:
        """Tokens of the running sequence of that rank: the least that so many percent do not exceed."""
        ranked = sorted(self.tokens)
        return ranked[max(0, -(-percent * len(ranked) // 100) - 1)]

    @property
    def wasted_slots(self) -> int:
        """Slots of the running sequences' blocks that hold no token, shared blocks counted each time."""
        return sum(self.entries) * self.block_size - sum(self.tokens)


def observe(state: PoolState) -> Observation:
    """The moment that a state is of. Raises ConfigError where its source does not tell blocks."""
    if not state.knows_blocks:
        raise ConfigError(
            f"engine {state.header.engine_name} does not tell which blocks its sequences hold: "
            "there is nothing to compare with"
        )
    config = state.header.config
    running = [s for s in state.sequences.values() if s.status is SequenceStatus.RUNNING]
    queues = state.queues
    most = config.get("max_num_seqs")
    return Observation(
        engine=state.header.engine_name,
        model=state.header.model,
        seq=state.seq,
        step=state.step,
        block_size=state.block_size,
        num_blocks=state.num_blocks,
        bytes_per_block=state.header.bytes_per_block,
        watermark=int((config.get("watermark") or 0) * state.num_blocks),
        max_num_seqs=most if isinstance(most, int) else None,
        tokens=tuple(s.computed for s in running),
        entries=tuple(len(s.table) for s in running),
        active=state.active_blocks,
        waiting=queues.waiting + queues.preempted,
    )


def observe_trace(
    path: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> Observation:
    """The fullest moment of a trace, which is read twice for it; `progress` is told of both.

    Raises TraceError for one that is damaged, ConfigError for one without steps.
    """
    seq = fullest(_moments(path, progress))
    with TraceReader(path) as reader:
        for number, (record, state) in enumerate(reader.fold()):
            if number % RECORDS_PER_TELL == 0:
                progress(reader.size + reader.position, 2 * reader.size)
            if isinstance(record, Step) and state.seq == seq:
                return observe(state)
    raise ConfigError(f"{path} has no step: there is nothing to compare with")


def _moments(path: Path, progress: Callable[[int, int], None]) -> Iterator[tuple[int, int, int]]:
    with TraceReader(path) as reader:
        for number, (record, state) in enumerate(reader.fold()):
            if number % RECORDS_PER_TELL == 0:
                progress(reader.position, 2 * reader.size)
            if isinstance(record, Step):
                queues = state.queues
                yield state.seq, queues.running, queues.waiting + queues.preempted


def fullest(moments: Iterable[tuple[int, int, int]]) -> int | None:
    """The seq that tells most of an engine's capacity, of (seq, running, waiting) in their order.

    Where sequences waited, as many ran as the engine could: the median of those moments is taken, the
    first with so many. Else it is the first with the most running. None without any moment.
    """
    # Running sequences -> [moments, the first of them]: few numbers, however long it goes on.
    full: dict[int, list[int]] = {}
    most, most_seq = -1, None
    for seq, running, waiting in moments:
        if running > most:
            most, most_seq = running, seq
        if waiting:
            full.setdefault(running, [0, seq])[0] += 1
    half = (sum(count for count, _ in full.values()) + 1) // 2
    for running in sorted(full):
        half -= full[running][0]
        if half <= 0:
            return full[running][1]
    return most_seq
