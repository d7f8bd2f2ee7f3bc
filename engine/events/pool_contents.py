"""What a pool holds after a record: blocks, sequences, requests and totals, and the same as a keyframe.

    block table of sequence 7          blocks                          owners
    index 0 -> block 12       12: ref 2, 16 of 16 filled        {7: 0, 8: 0}    shared by a fork
    index 1 -> block 3         3: ref 1,  5 of 16 filled        {7: 1}

Nothing here knows what an event means: see engine/events/pool_state.py.
"""

import msgspec

from engine.events.records import (
    BlockRow,
    Header,
    Keyframe,
    QueueLengths,
    RequestRow,
    SequenceRow,
    SequenceStatus,
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


class PoolContents:
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
        self.tally = Tally()
        # Figures that every step asks for are moved by events, not counted over the pool.
        self._cached = self._shared = self._references = self._slots_filled = 0
        self._queues = dict.fromkeys(SequenceStatus, 0)

    # -- figures ------------------------------------------------------------------------------

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

    # -- as a keyframe ------------------------------------------------------------------------

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

    def _load(self, keyframe: Keyframe) -> None:
        """Become what a keyframe tells. Raises FoldError where it contradicts itself or goes back."""
        self.complete = False
        if keyframe.seq < self.seq:
            raise FoldError(f"keyframe {keyframe.seq} follows record {self.seq}: seq goes back")
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
        try:
            self.tally.load(keyframe)
        except KeyError as error:
            raise FoldError(
                f"keyframe {keyframe.seq}: a sequence of unknown request {error}"
            ) from None
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

    def _add_sequence(self, sequence: SequenceState) -> None:
        if sequence.sequence in self.sequences:
            raise FoldError(f"sequence {sequence.sequence} exists already")
        self.sequences[sequence.sequence] = sequence
        self._queues[sequence.status] += 1
