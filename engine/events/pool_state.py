"""PoolState: the fold over records, and so the one meaning of each event.

    block table of sequence 7          blocks                          owners
    index 0 -> block 12       12: ref 2, 16 of 16 filled        {7: 0, 8: 0}    shared by a fork
    index 1 -> block 3         3: ref 1,  5 of 16 filled        {7: 1}

Live views, replay, checks and statistics all read this state. Applying a record that cannot follow
from the state (a release of a block that the table does not end with, say) raises FoldError, so a
trace that folds has kept its books.
"""

import msgspec

from engine.events.records import (
    Allocate,
    AllocationFailed,
    BlockRow,
    Cache,
    Computed,
    CopyOnWrite,
    Evict,
    Fork,
    Gap,
    Header,
    Keyframe,
    PoolReset,
    Preempt,
    PrefixLookup,
    QueueLengths,
    Record,
    Release,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    RequestRow,
    Sampled,
    SequenceFinished,
    SequenceRow,
    SequenceScheduled,
    SequenceStatus,
    Share,
    Step,
    Totals,
)
from engine.events.totals import Tally, copy_totals


class FoldError(ValueError):
    """A record contradicts the state it is applied to. The message names record, block, sequence."""


class SequenceState(msgspec.Struct):
    """One unfinished sequence. `table[index]` is the physical block of logical block `index`."""

    sequence: int
    request: str
    status: SequenceStatus
    computed: int = 0
    table: list[int] = []
    preemptions: int = 0
    parent: int | None = None
    text: list[str] | None = None


class RequestState(msgspec.Struct):
    """One unfinished request."""

    request: str
    prompt_tokens: int
    n: int
    max_tokens: int
    arrived: float
    preemptions: int = 0
    recomputed_tokens: int = 0


class PoolState:
    """All blocks, sequences, requests and totals after record `seq` (-1: nothing applied yet).

    Per block, indexed by its number: `ref_count`, `filled` (slots with KV), `last_change` (seq of the
    last record that touched it, -1 never). `owners[block]` maps sequence -> logical index for active
    blocks; `hashes[block]` is set for blocks in the prefix index. `complete` is False between a gap
    and the next keyframe: then nothing here may be shown as now.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self.num_blocks = header.num_blocks
        self.block_size = header.block_size
        self.complete = False
        self._clear()

    def _clear(self) -> None:
        self.seq = -1
        self.step = -1
        self.time = self.header.monotonic
        self.ref_count = [0] * self.num_blocks
        self.filled = [0] * self.num_blocks
        self.last_change = [-1] * self.num_blocks
        self.owners: dict[int, dict[int, int]] = {}
        self.hashes: dict[int, str] = {}
        self.sequences: dict[int, SequenceState] = {}
        self.requests: dict[str, RequestState] = {}
        self.tally = Tally()

    # -- reading ------------------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        """Counters and latencies since the engine started."""
        return self.tally.totals

    @property
    def active_blocks(self) -> int:
        """Blocks with ref count >= 1."""
        return len(self.owners)

    @property
    def cached_blocks(self) -> int:
        """Blocks with ref count 0 that are still in the prefix index."""
        return sum(1 for block in self.hashes if not self.ref_count[block])

    @property
    def free_blocks(self) -> int:
        return self.num_blocks - self.active_blocks - self.cached_blocks

    @property
    def shared_blocks(self) -> int:
        """Blocks with ref count above 1."""
        return sum(1 for owners in self.owners.values() if len(owners) > 1)

    @property
    def references(self) -> int:
        """Sum of ref counts."""
        return sum(len(owners) for owners in self.owners.values())

    @property
    def slots_filled(self) -> int:
        """Slots with KV in active blocks, shared blocks counted once."""
        return sum(self.filled[block] for block in self.owners)

    @property
    def slots_allocated(self) -> int:
        return self.active_blocks * self.block_size

    @property
    def queues(self) -> QueueLengths:
        statuses = [sequence.status for sequence in self.sequences.values()]
        return QueueLengths(
            waiting=statuses.count(SequenceStatus.WAITING),
            running=statuses.count(SequenceStatus.RUNNING),
            preempted=statuses.count(SequenceStatus.PREEMPTED),
        )

    def block_text(self, block: int) -> str | None:
        """The tokens whose KV the block holds, as text; None where the source records no text."""
        for number, index in self.owners.get(block, {}).items():
            text = self.sequences[number].text
            if text is not None:
                start = index * self.block_size
                return "".join(text[start : start + self.filled[block]])
        return None

    def keyframe(self) -> Keyframe:
        """This state as data."""
        return Keyframe(
            seq=self.seq,
            step=self.step,
            time=self.time,
            blocks=[
                BlockRow(b, self.ref_count[b], self.filled[b], changed, self.hashes.get(b))
                for b, changed in enumerate(self.last_change)
                if changed >= 0
            ],
            sequences=[
                SequenceRow(
                    s.sequence, s.request, s.status, s.computed, list(s.table), s.preemptions,
                    s.parent, None if s.text is None else list(s.text),
                    self.tally.output_tokens(s.sequence),
                    self.tally.sequences[s.sequence].last_token,
                )
                for s in self.sequences.values()
            ],
            requests=[
                RequestRow(
                    r.request, r.prompt_tokens, r.n, r.max_tokens, r.arrived, r.preemptions,
                    r.recomputed_tokens, self.tally.requests[r.request].first_token,
                )
                for r in self.requests.values()
            ],
            totals=copy_totals(self.totals),
        )  # fmt: skip

    # -- applying -----------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Move to the state after `record`.

        Raises FoldError where the record cannot follow; the state is then not to be used until a
        keyframe has been applied.
        """
        match record:
            case Step():
                self._apply_step(record)
            case Keyframe():
                self._load(record)
            case Gap():
                self.complete = False
            case Header():
                raise FoldError("a header in the middle of a stream: start a new PoolState from it")

    def _load(self, keyframe: Keyframe) -> None:
        self._clear()
        self.seq, self.step, self.time = keyframe.seq, keyframe.step, keyframe.time
        for row in keyframe.blocks:
            if not 0 <= row.block < self.num_blocks:
                raise FoldError(f"keyframe {keyframe.seq}: block {row.block} is outside the pool")
            self.ref_count[row.block] = row.ref_count
            self.filled[row.block] = row.filled
            self.last_change[row.block] = row.last_change
            if row.hash is not None:
                self.hashes[row.block] = row.hash
        for row in keyframe.sequences:
            self.sequences[row.sequence] = SequenceState(
                row.sequence, row.request, row.status, row.computed, list(row.table),
                row.preemptions, row.parent, None if row.text is None else list(row.text),
            )  # fmt: skip
            for index, block in enumerate(row.table):
                if not 0 <= block < self.num_blocks:
                    raise FoldError(f"keyframe {keyframe.seq}: block {block} is outside the pool")
                self.owners.setdefault(block, {})[row.sequence] = index
        for row in keyframe.requests:
            self.requests[row.request] = RequestState(
                row.request, row.prompt_tokens, row.n, row.max_tokens, row.arrived,
                row.preemptions, row.recomputed_tokens,
            )  # fmt: skip
        try:
            self.tally.load(keyframe)
        except KeyError as error:
            raise FoldError(
                f"keyframe {keyframe.seq}: a sequence of unknown request {error}"
            ) from None
        self.complete = True

    def _apply_step(self, step: Step) -> None:
        if not self.complete:
            raise FoldError(f"step record {step.seq} came before a keyframe")
        if step.seq != self.seq + 1:
            self.complete = False
            raise FoldError(f"step record {step.seq} follows {self.seq}: records are missing")
        self.seq, self.step, self.time = step.seq, step.step, step.time
        try:
            for event in step.events:
                _APPLY[type(event)](self, event)
        except (KeyError, IndexError) as error:
            self.complete = False
            raise FoldError(
                f"step record {step.seq}: {event} names an unknown sequence, request or block ({error})"
            ) from None
        except FoldError as error:
            self.complete = False
            raise FoldError(f"step record {step.seq}: {event}: {error}") from None
        self.tally.apply(step)

    def _take(self, block: int, sequence: int, index: int) -> None:
        """A block with ref count 0 gets its first owner."""
        if not 0 <= block < self.num_blocks:
            raise FoldError(f"block {block} is outside the pool of {self.num_blocks}")
        if self.ref_count[block] or block in self.hashes:
            raise FoldError(f"block {block} is not free")
        self.ref_count[block] = 1
        self.filled[block] = 0
        self.owners[block] = {sequence: index}
        self.last_change[block] = self.seq

    def _drop(self, block: int, sequence: int) -> None:
        """One owner less; without content in the index the block is empty when the last one goes."""
        owners = self.owners[block]
        del owners[sequence]
        self.ref_count[block] -= 1
        self.last_change[block] = self.seq
        if not owners:
            del self.owners[block]
            if block not in self.hashes:
                self.filled[block] = 0

    def _append(self, sequence: int, index: int, block: int) -> None:
        table = self.sequences[sequence].table
        if index != len(table):
            raise FoldError(f"entry {index} does not follow a table of {len(table)} entries")
        table.append(block)

    def _add_sequence(self, sequence: SequenceState) -> None:
        if sequence.sequence in self.sequences:
            raise FoldError(f"sequence {sequence.sequence} exists already")
        self.sequences[sequence.sequence] = sequence

    def _request_added(self, event: RequestAdded) -> None:
        if event.request in self.requests:
            raise FoldError(f"request {event.request} exists already")
        self.requests[event.request] = RequestState(
            event.request, event.prompt_tokens, event.n, event.max_tokens, event.arrived
        )
        text = None if event.prompt_text is None else list(event.prompt_text)
        self._add_sequence(
            SequenceState(event.sequence, event.request, SequenceStatus.WAITING, text=text)
        )

    def _sequence_scheduled(self, event: SequenceScheduled) -> None:
        self.sequences[event.sequence].status = SequenceStatus.RUNNING

    def _fork(self, event: Fork) -> None:
        parent = self.sequences[event.parent]
        text = None if parent.text is None else list(parent.text)
        self._add_sequence(
            SequenceState(
                event.child,
                parent.request,
                parent.status,
                parent.computed,
                [],
                0,
                event.parent,
                text,
            )
        )

    def _allocate(self, event: Allocate) -> None:
        self._append(event.sequence, event.index, event.block)
        self._take(event.block, event.sequence, event.index)

    def _share(self, event: Share) -> None:
        self._append(event.sequence, event.index, event.block)
        owners = self.owners.setdefault(event.block, {})
        if not owners and event.block not in self.hashes:
            raise FoldError(f"block {event.block} has no content to share")
        if event.sequence in owners:
            raise FoldError(f"block {event.block} is in the table already")
        owners[event.sequence] = event.index
        self.ref_count[event.block] += 1
        self.last_change[event.block] = self.seq

    def _release(self, event: Release) -> None:
        table = self.sequences[event.sequence].table
        if not table or table[-1] != event.block:
            raise FoldError(f"block {event.block} is not the table's last entry")
        table.pop()
        self._drop(event.block, event.sequence)
        if self.ref_count[event.block] != event.left:
            raise FoldError(f"{self.ref_count[event.block]} references remain, not {event.left}")

    def _cow(self, event: CopyOnWrite) -> None:
        table = self.sequences[event.sequence].table
        if table[event.index] != event.source:
            raise FoldError(f"entry {event.index} is block {table[event.index]}")
        if self.ref_count[event.source] < 2:
            raise FoldError(f"block {event.source} is not shared")
        self._take(event.target, event.sequence, event.index)
        self.filled[event.target] = self.filled[event.source]
        table[event.index] = event.target
        self._drop(event.source, event.sequence)

    def _cache(self, event: Cache) -> None:
        if event.block not in self.owners:
            raise FoldError(f"block {event.block} is not active")
        if self.filled[event.block] != self.block_size:
            raise FoldError(f"block {event.block} is not full")
        self.hashes[event.block] = event.hash
        self.last_change[event.block] = self.seq

    def _evict(self, event: Evict) -> None:
        if self.ref_count[event.block]:
            raise FoldError(f"block {event.block} is active")
        if self.hashes.pop(event.block) != event.hash:
            raise FoldError(f"block {event.block} was cached under another hash")
        self.filled[event.block] = 0
        self.last_change[event.block] = self.seq

    def _computed(self, event: Computed) -> None:
        sequence = self.sequences[event.sequence]
        start, size = sequence.computed, self.block_size
        end = sequence.computed = start + event.tokens
        if end > len(sequence.table) * size:
            raise FoldError(f"{end} computed tokens do not fit {len(sequence.table)} blocks")
        for index in range(start // size, (end + size - 1) // size):
            block = sequence.table[index]
            self.filled[block] = max(self.filled[block], min(size, end - index * size))
        self.requests[sequence.request].recomputed_tokens += event.recomputed

    def _sampled(self, event: Sampled) -> None:
        text = self.sequences[event.sequence].text
        if text is not None:
            text.append(event.text)

    def _preempt(self, event: Preempt) -> None:
        sequence = self.sequences[event.sequence]
        if event.blocks_released != len(sequence.table) or event.tokens_lost != sequence.computed:
            raise FoldError(
                f"the sequence has {len(sequence.table)} blocks and {sequence.computed} computed tokens"
            )
        sequence.status = SequenceStatus.PREEMPTED
        sequence.computed = 0
        sequence.preemptions += 1
        self.requests[sequence.request].preemptions += 1

    def _prefix_lookup(self, event: PrefixLookup) -> None:
        self.sequences[event.sequence].computed = event.hit

    def _sequence_finished(self, event: SequenceFinished) -> None:
        sequence = self.sequences.pop(event.sequence)
        if sequence.table:
            raise FoldError(f"the sequence ended with {len(sequence.table)} blocks")

    def _request_finished(self, event: RequestFinished) -> None:
        del self.requests[event.request]
        left = [s.sequence for s in self.sequences.values() if s.request == event.request]
        if left:
            raise FoldError(f"sequences {left} are unfinished")

    def _pool_reset(self, event: PoolReset) -> None:
        for block in self.hashes:
            self.filled[block] = 0
            self.last_change[block] = self.seq
        self.hashes.clear()

    def _nothing(self, event: RequestRejected | AllocationFailed) -> None:
        """These move totals only."""


_APPLY = {
    RequestAdded: PoolState._request_added,
    RequestRejected: PoolState._nothing,
    SequenceScheduled: PoolState._sequence_scheduled,
    Fork: PoolState._fork,
    Allocate: PoolState._allocate,
    Share: PoolState._share,
    Release: PoolState._release,
    CopyOnWrite: PoolState._cow,
    Cache: PoolState._cache,
    Evict: PoolState._evict,
    AllocationFailed: PoolState._nothing,
    Computed: PoolState._computed,
    Sampled: PoolState._sampled,
    Preempt: PoolState._preempt,
    PrefixLookup: PoolState._prefix_lookup,
    SequenceFinished: PoolState._sequence_finished,
    RequestFinished: PoolState._request_finished,
    PoolReset: PoolState._pool_reset,
}
