"""PoolState: the fold over records, and so the one meaning of each event.

Live views, replay, checks and statistics all read this state. Applying a record that cannot follow
from the state (a release of a block that the table does not end with, say) raises FoldError, so a
trace that folds has kept its books.
"""

from collections.abc import Callable

from engine.events.pool_contents import FoldError, PoolContents, RequestState, SequenceState
from engine.events.records import (
    Allocate,
    AllocationFailed,
    AnyEvent,
    Cache,
    Computed,
    CopyOnWrite,
    Evict,
    Fork,
    Gap,
    Header,
    Heartbeat,
    Keyframe,
    PoolReset,
    Preempt,
    PrefixLookup,
    Record,
    Release,
    RequestAdded,
    RequestFinished,
    RequestRejected,
    Sampled,
    SequenceFinished,
    SequenceScheduled,
    SequenceStatus,
    Share,
    Step,
)

LONGEST_EVENT = 160
"""Characters of an event that a message shows."""


class PoolState(PoolContents):
    """The contents of a pool (see PoolContents for its attributes), moved on by records."""

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
                if not self.complete:
                    raise FoldError("a gap stands where a keyframe must come")
                self.complete = False
            case Heartbeat():
                """Nothing happened."""
            case Header():
                raise FoldError("a header in the middle of a stream: start a new PoolState from it")

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
        self.tally.apply(step)

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
