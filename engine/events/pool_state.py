"""PoolState: the fold over records, and so the one meaning of each event.

    block table of sequence 7          blocks                          owners
    index 0 -> block 12       12: ref 2, 16 of 16 filled        {7: 0, 8: 0}    shared by a fork
    index 1 -> block 3         3: ref 1,  5 of 16 filled        {7: 1}

Live views, replay, checks and statistics all read this state. Applying a record that cannot follow
from the state (a release of a block that the table does not end with, say) raises FoldError, so a
trace that folds has kept its books.
"""

from collections.abc import Callable

import msgspec

from engine.events.records import (
    Allocate,
    AllocationFailed,
    AnyEvent,
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
from engine.events.totals import count_step

LONGEST_EVENT = 160
"""Characters of an event that a message shows."""


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
    and the next keyframe: then nothing here may be shown as now. Without `knows_blocks` the producer
    tells of sequences and requests only, and tables stay empty.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self.num_blocks = header.num_blocks
        self.block_size = header.block_size
        self.knows_blocks = "physical_blocks" in header.knows
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
        self.totals = Totals()
        # Figures that every step asks for are moved by events, not counted over the pool.
        self._cached = self._shared = self._references = self._slots_filled = 0
        self._queues = dict.fromkeys(SequenceStatus, 0)

    # -- reading ------------------------------------------------------------------------------

    @property
    def active_blocks(self) -> int:
        """Blocks with ref count >= 1."""
        return len(self.owners)

    @property
    def cached_blocks(self) -> int:
        """Blocks with ref count 0 that are still in the prefix index."""
        return self._cached

    @property
    def free_blocks(self) -> int:
        return self.num_blocks - self.active_blocks - self.cached_blocks

    @property
    def shared_blocks(self) -> int:
        """Blocks with ref count above 1."""
        return self._shared

    @property
    def references(self) -> int:
        """Sum of ref counts."""
        return self._references

    @property
    def slots_filled(self) -> int:
        """Slots with KV in active blocks, shared blocks counted once."""
        return self._slots_filled

    @property
    def slots_allocated(self) -> int:
        return self.active_blocks * self.block_size

    @property
    def queues(self) -> QueueLengths:
        """Unfinished sequences by status."""
        return QueueLengths(
            waiting=self._queues[SequenceStatus.WAITING],
            running=self._queues[SequenceStatus.RUNNING],
            preempted=self._queues[SequenceStatus.PREEMPTED],
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
                )
                for s in self.sequences.values()
            ],
            requests=[
                RequestRow(
                    r.request, r.prompt_tokens, r.n, r.max_tokens, r.arrived, r.preemptions,
                    r.recomputed_tokens,
                )
                for r in self.requests.values()
            ],
            totals=copy_totals(self.totals),
        )  # fmt: skip

    # -- applying -----------------------------------------------------------------------------

    def apply(self, record: Record, before: Callable[[AnyEvent], None] | None = None) -> None:
        """Move to the state after `record`. `before` is called with each event, ahead of its effect.

        Raises FoldError where the record cannot follow; the state is then not to be used until a
        keyframe has been applied.
        """
        match record:
            case Step():
                self._apply_step(record, before)
            case Keyframe():
                self._load(record)
            case Gap():
                self.complete = False
            case Header():
                raise FoldError("a header in the middle of a stream: start a new PoolState from it")

    def _load(self, keyframe: Keyframe) -> None:
        self.complete = False
        self._clear()
        self.seq, self.step, self.time = keyframe.seq, keyframe.step, keyframe.time
        try:
            self._load_blocks(keyframe.blocks)
            for row in keyframe.sequences:
                self._load_sequence(row)
        except IndexError:
            raise FoldError(
                f"keyframe {keyframe.seq} names a block outside the pool of {self.num_blocks}"
            ) from None
        except FoldError as error:
            raise FoldError(f"keyframe {keyframe.seq}: {error}") from None
        for row in keyframe.requests:
            self.requests[row.request] = RequestState(
                row.request, row.prompt_tokens, row.n, row.max_tokens, row.arrived,
                row.preemptions, row.recomputed_tokens,
            )  # fmt: skip
        self.totals = copy_totals(keyframe.totals)
        self.complete = True

    def _load_blocks(self, rows: list[BlockRow]) -> None:
        # One pass: a seek loads whole pools, and their rows are in no cache of the processor.
        ref_count, filled, last_change = self.ref_count, self.filled, self.last_change
        for row in rows:
            block = row.block
            ref_count[block] = references = row.ref_count
            filled[block] = row.filled
            last_change[block] = row.last_change
            if row.hash is not None:
                self.hashes[block] = row.hash
            if references:
                self._references += references
                self._slots_filled += row.filled
                if references > 1:
                    self._shared += 1
            elif row.hash is not None:
                self._cached += 1

    def _load_sequence(self, row: SequenceRow) -> None:
        sequence, ref_count, owners = row.sequence, self.ref_count, self.owners
        self._add_sequence(
            SequenceState(
                sequence, row.request, row.status, row.computed, list(row.table), row.preemptions,
                row.parent, None if row.text is None else list(row.text),
            )
        )  # fmt: skip
        for index, block in enumerate(row.table):
            if ref_count[block] == 1:
                owners[block] = {sequence: index}
            else:
                owners.setdefault(block, {})[sequence] = index

    def _apply_step(self, step: Step, before: Callable[[AnyEvent], None] | None) -> None:
        if not self.complete:
            raise FoldError(f"step record {step.seq} came before a keyframe")
        if step.seq != self.seq + 1:
            self.complete = False
            raise FoldError(f"step record {step.seq} follows {self.seq}: records are missing")
        self.seq, self.step, self.time = step.seq, step.step, step.time
        try:
            for event in step.events:
                if before is not None:
                    before(event)
                _APPLY[type(event)](self, event)
        except (KeyError, IndexError) as error:
            self.complete = False
            raise FoldError(
                f"step record {step.seq}: {_brief(event)} names an unknown sequence, request or block "
                f"({error})"
            ) from None
        except FoldError as error:
            self.complete = False
            raise FoldError(f"step record {step.seq}: {_brief(event)}: {error}") from None
        count_step(self.totals, step)

    def _take(self, block: int, sequence: int, index: int) -> None:
        """A block with ref count 0 gets its first owner."""
        if block >= self.num_blocks:
            raise FoldError(f"block {block} is outside the pool of {self.num_blocks}")
        if block in self.owners or block in self.hashes:
            raise FoldError(f"block {block} is not free")
        self.ref_count[block] = 1
        self._references += 1
        self.filled[block] = 0
        self.owners[block] = {sequence: index}
        self.last_change[block] = self.seq

    def _drop(self, block: int, sequence: int) -> int:
        """One owner less; without content in the index the block is empty when the last one goes.

        Returns the owners that remain.
        """
        owners = self.owners[block]
        del owners[sequence]
        self.ref_count[block] = left = self.ref_count[block] - 1
        self._references -= 1
        self.last_change[block] = self.seq
        if not owners:
            del self.owners[block]
            self._slots_filled -= self.filled[block]
            if block in self.hashes:
                self._cached += 1
            else:
                self.filled[block] = 0
        elif len(owners) == 1:
            self._shared -= 1
        return left

    def _append(self, sequence: int, index: int, block: int) -> None:
        table = self.sequences[sequence].table
        if index != len(table):
            raise FoldError(f"entry {index} does not follow a table of {len(table)} entries")
        table.append(block)

    def _add_sequence(self, sequence: SequenceState) -> None:
        if sequence.sequence in self.sequences:
            raise FoldError(f"sequence {sequence.sequence} exists already")
        self.sequences[sequence.sequence] = sequence
        self._queues[sequence.status] += 1

    def _move(self, sequence: SequenceState, status: SequenceStatus) -> None:
        self._queues[sequence.status] -= 1
        self._queues[status] += 1
        sequence.status = status

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
        self._move(self.sequences[event.sequence], SequenceStatus.RUNNING)

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
        if len(owners) == 1:
            self._shared += 1
        elif not owners:
            self._cached -= 1
            self._slots_filled += self.filled[event.block]
        owners[event.sequence] = event.index
        self.ref_count[event.block] += 1
        self._references += 1
        self.last_change[event.block] = self.seq

    def _release(self, event: Release) -> None:
        table = self.sequences[event.sequence].table
        if not table or table[-1] != event.block:
            raise FoldError(f"block {event.block} is not the table's last entry")
        table.pop()
        left = self._drop(event.block, event.sequence)
        if left != event.left:
            raise FoldError(f"{left} references remain, not {event.left}")

    def _cow(self, event: CopyOnWrite) -> None:
        table = self.sequences[event.sequence].table
        if table[event.index] != event.source:
            raise FoldError(f"entry {event.index} is block {table[event.index]}")
        if self.ref_count[event.source] < 2:
            raise FoldError(f"block {event.source} is not shared")
        self._take(event.target, event.sequence, event.index)
        self.filled[event.target] = self.filled[event.source]
        self._slots_filled += self.filled[event.source]
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
        self._cached -= 1
        self.filled[event.block] = 0
        self.last_change[event.block] = self.seq

    def _computed(self, event: Computed) -> None:
        sequence = self.sequences[event.sequence]
        start, size, table, filled = sequence.computed, self.block_size, sequence.table, self.filled
        end = start + event.tokens
        if end > len(table) * size:
            if not self.knows_blocks:
                sequence.computed = end
                return
            raise FoldError(f"{end} computed tokens do not fit {len(table)} blocks")
        sequence.computed = end
        # A decode's one token, most events of most traces, is one turn of this loop.
        index = start // size
        while True:
            held = end - index * size
            block = table[index]
            more = (size if held > size else held) - filled[block]
            if more > 0:
                filled[block] += more
                self._slots_filled += more
            if held <= size:
                break
            index += 1
        if event.recomputed:
            self.requests[sequence.request].recomputed_tokens += event.recomputed

    def _sampled(self, event: Sampled) -> None:
        text = self.sequences[event.sequence].text
        if text is not None:
            text.append(event.text)

    def _preempt(self, event: Preempt) -> None:
        sequence = self.sequences[event.sequence]
        kept = (len(sequence.table), sequence.computed)
        if self.knows_blocks and (event.blocks_released, event.tokens_lost) != kept:
            raise FoldError(
                f"the sequence has {len(sequence.table)} blocks and {sequence.computed} computed tokens"
            )
        self._move(sequence, SequenceStatus.PREEMPTED)
        sequence.computed = 0
        sequence.preemptions += 1
        self.requests[sequence.request].preemptions += 1

    def _prefix_lookup(self, event: PrefixLookup) -> None:
        self.sequences[event.sequence].computed = event.hit

    def _sequence_finished(self, event: SequenceFinished) -> None:
        sequence = self.sequences.pop(event.sequence)
        self._queues[sequence.status] -= 1
        if sequence.table:
            raise FoldError(f"the sequence ended with {len(sequence.table)} blocks")

    def _request_finished(self, event: RequestFinished) -> None:
        del self.requests[event.request]
        left = [s.sequence for s in self.sequences.values() if s.request == event.request]
        if left:
            raise FoldError(f"sequences {left} are unfinished")

    def _pool_reset(self, event: PoolReset) -> None:
        if self.owners:
            raise FoldError(f"{len(self.owners)} blocks are active")
        for block in self.hashes:
            self.filled[block] = 0
            self.last_change[block] = self.seq
        self.hashes.clear()
        self._cached = 0

    def _nothing(self, event: RequestRejected | AllocationFailed) -> None:
        """These move totals only."""


def _brief(event: AnyEvent) -> str:
    """An event for a message: one line, however long its text is."""
    text = repr(event)
    return text if len(text) <= LONGEST_EVENT else f"{text[:LONGEST_EVENT]}…"


def copy_totals(totals: Totals) -> Totals:
    """A copy that shares nothing with the original."""
    return msgspec.structs.replace(
        totals,
        preemptions=dict(totals.preemptions),
        requests_finished=dict(totals.requests_finished),
    )


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
