"""The event contract: every record that crosses the glass wall, as types.

A stream or a trace is a Header, then a Keyframe, then Steps; a Keyframe may come again at any time,
and always follows a Gap. One record is one line of JSON whose `type` names it.

    Header  who recorded, what it knows, the shape of the pool
    Keyframe  the whole pool after step record `seq`
    Step  one turn of the engine: durations, tokens, queues and, in the order in which they took
          effect, the events
    Gap  how many step records were left out here, and why
    Heartbeat  in a stream where nothing happens: the producer is alive

Times are seconds of the producer's monotonic clock unless a name says otherwise; the header anchors
that clock to wall time.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from engine.events import histograms
from engine.events.histograms import Histogram

SCHEMA_VERSION = 1

MAX_BLOCKS = 1 << 20
"""Most blocks of a pool. A fold keeps lists of this length, so a header may not ask for any more."""

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number of something, or the number of a block, a sequence or a table entry."""
Place = Annotated[int, msgspec.Meta(ge=-1)]
"""The number of a record or a step; -1 before the first."""


class BlockSource(StrEnum):
    """Where a block that is handed out came from."""

    FREE = "free"
    EVICTED = "evicted"


class ShareWhy(StrEnum):
    FORK = "fork"
    PREFIX = "prefix"


class ReleaseWhy(StrEnum):
    FINISHED = "finished"
    ABORTED = "aborted"
    PREEMPTED = "preempted"
    PRUNED = "pruned"


class ScheduledKind(StrEnum):
    FIRST = "first"
    RESUMED = "resumed"


class PreemptWhy(StrEnum):
    NO_FREE_BLOCK = "no_free_block"


class RejectWhy(StrEnum):
    PROMPT_TOO_LONG = "prompt_too_long"
    NEVER_FITS_POOL = "never_fits_pool"
    TOO_MANY_SEQUENCES = "too_many_sequences"
    QUEUE_FULL = "queue_full"


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    PRUNED = "pruned"
    """A beam that others have overtaken. Sequences only: a request never ends so."""


class LookupStop(StrEnum):
    """Why a prefix lookup ended where it did."""

    MISS = "miss"
    SHORTER_THAN_BLOCK = "shorter_than_block"
    LAST_TOKEN_KEPT = "last_token_kept"
    OFF = "off"


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type"):
    """One change of the engine's memory or queues. `sequence` and `block` are engine-wide numbers."""


class RequestAdded(Event, frozen=True, gc=False, tag="request_added"):
    """A request entered the queue as its first sequence; `n` sequences will share its prompt.

    `arrived` is when the client's call was taken, which may be before the step that records it.
    `prompt_text` has one string a prompt token, only where text is recorded.
    """

    request: str
    sequence: Count
    prompt_tokens: Count
    n: Count
    max_tokens: Count
    arrived: float
    prompt_text: list[str] | None = None


class RequestRejected(Event, frozen=True, gc=False, tag="request_rejected"):
    request: str
    why: RejectWhy
    prompt_tokens: Count


class SequenceScheduled(Event, frozen=True, gc=False, tag="sequence_scheduled"):
    """A sequence moved from the queue to running."""

    sequence: Count
    kind: ScheduledKind


class Fork(Event, frozen=True, gc=False, tag="fork"):
    """`child` begins as a copy of `parent`; a share event follows for each of the parent's blocks."""

    parent: Count
    child: Count


class Allocate(Event, frozen=True, gc=False, tag="allocate", rename={"source": "from"}):
    """`block` becomes entry `index` of the sequence's block table; ref count 0 -> 1."""

    block: Count
    sequence: Count
    index: Count
    source: BlockSource


class Share(Event, frozen=True, gc=False, tag="share"):
    """`block` becomes entry `index` of one more table; ref count + 1."""

    block: Count
    sequence: Count
    index: Count
    why: ShareWhy


class Release(Event, frozen=True, gc=False, tag="release"):
    """The sequence's table drops `block`, its last entry; `left` references remain."""

    block: Count
    sequence: Count
    why: ReleaseWhy
    left: Count


class CopyOnWrite(Event, frozen=True, gc=False, tag="cow", rename={"source_kind": "from"}):
    """Entry `index` moves from the shared `source` to `target`, a new block that starts as its copy.

    Ref counts: source - 1 (it stays above 0), target 0 -> 1. `from` says where target came from.
    """

    source: Count
    target: Count
    sequence: Count
    index: Count
    source_kind: BlockSource


class Cache(Event, frozen=True, gc=False, tag="cache"):
    """A full, computed block enters the prefix index under a salted hash."""

    block: Count
    hash: str
    parent: str | None = None


class Evict(Event, frozen=True, gc=False, tag="evict"):
    """A block with ref count 0 leaves the prefix index; its content is gone."""

    block: Count
    hash: str


class AllocationFailed(Event, frozen=True, gc=False, tag="allocation_failed"):
    """One attempt to get `needed` blocks while only `available` could be had; nothing changed.

    For a waiting sequence `needed` covers all its tokens, and the watermark's share of the pool.
    """

    sequence: Count
    needed: Count
    available: Count


class Computed(Event, frozen=True, gc=False, tag="computed"):
    """`tokens` more of the sequence have KV; `recomputed` of them had been computed before."""

    sequence: Count
    tokens: Annotated[int, msgspec.Meta(ge=1)]
    recomputed: Count = 0


class Sampled(Event, frozen=True, gc=False, tag="sampled"):
    """The text of one new token. Only where text is recorded; without KV until a later step."""

    sequence: Count
    text: str


class Preempt(Event, frozen=True, gc=False, tag="preempt"):
    """A running sequence goes back to the queue; a release follows for each of its blocks.

    `victim_of` is the sequence that needed a block (itself, where it was the youngest).
    `tokens_lost` counts computed tokens whose KV is dropped.
    """

    sequence: Count
    why: PreemptWhy
    victim_of: Count
    blocks_released: Count
    tokens_lost: Count


class PrefixLookup(Event, frozen=True, gc=False, tag="prefix_lookup"):
    """A sequence of `queried` tokens was looked up in the prefix index; it starts with `hit` computed.

    A share event came before for each block of the hit. `resumed`: it had run before.
    """

    sequence: Count
    queried: Count
    hit: Count
    why: LookupStop
    resumed: bool = False


class SequenceFinished(Event, frozen=True, gc=False, tag="sequence_finished"):
    """The sequence has ended; its blocks were released before."""

    sequence: Count
    reason: FinishReason
    output_tokens: Count


class RequestFinished(Event, frozen=True, gc=False, tag="request_finished"):
    """All sequences of a request have ended. Seconds; None where that point was never reached."""

    request: str
    reason: FinishReason
    output_tokens: Count
    preemptions: Count
    recomputed_tokens: Count
    queue_seconds: float | None
    first_token_seconds: float | None
    duration_seconds: float


class PoolReset(Event, frozen=True, gc=False, tag="pool_reset"):
    """The prefix index was emptied; no block was active."""


AnyEvent = (
    RequestAdded
    | RequestRejected
    | SequenceScheduled
    | Fork
    | Allocate
    | Share
    | Release
    | CopyOnWrite
    | Cache
    | Evict
    | AllocationFailed
    | Computed
    | Sampled
    | Preempt
    | PrefixLookup
    | SequenceFinished
    | RequestFinished
    | PoolReset
)


class TokenCounts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens run through the model in one step, by kind of work; disjoint."""

    prefill: Count = 0
    decode: Count = 0
    recompute: Count = 0

    @property
    def total(self) -> int:
        return self.prefill + self.decode + self.recompute


class QueueLengths(msgspec.Struct, frozen=True, gc=False):
    """Sequences at the step's end. Preempted ones wait too, but are counted apart."""

    waiting: Count
    running: Count
    preempted: Count


class Durations(msgspec.Struct, frozen=True, gc=False):
    """Seconds: planning; copies and forward pass; sampling and commit."""

    schedule: float
    model: float
    sample: float


class Step(msgspec.Struct, frozen=True, tag_field="type", tag="step"):
    """One turn of the engine. `seq` has no gaps; `step` counts turns that ran the model."""

    seq: Place
    step: Place
    time: float
    durations: Durations
    tokens: TokenCounts
    queues: QueueLengths
    events: list[AnyEvent]


class Gap(msgspec.Struct, frozen=True, tag_field="type", tag="gap"):
    """`count` step records after record `after` are not here. A keyframe follows."""

    after: Place
    count: Count
    why: str


class Heartbeat(msgspec.Struct, frozen=True, tag_field="type", tag="heartbeat"):
    """Nothing has happened since record `seq`, at `time`. In streams only: it changes no state."""

    seq: Place
    time: float


class Producer(msgspec.Struct, frozen=True):
    name: str
    version: str


class Header(msgspec.Struct, frozen=True, tag_field="type", tag="header"):
    """What a reader must know before the first record.

    `knows` lists what this producer observes; a view shows everything else as unknown, never as zero:
    physical_blocks, ref_counts, fills, block_hashes, recompute, latencies, durations, queues.
    `config` has every configuration value. `wall_time` (seconds since the epoch) and `monotonic`
    were read together. `redacted` lists what was withheld: token_ids, text. `simulated`: no model
    ran; lengths were given, and times are those of a cost model.
    """

    schema_version: int
    producer: Producer
    knows: list[str]
    engine_id: str
    engine_name: str
    model: str
    dtype: str
    block_size: Annotated[int, msgspec.Meta(ge=1)]
    num_blocks: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCKS)]
    bytes_per_block: Count
    num_layers: Count
    num_kv_heads: Count
    head_dim: Count
    config: dict[str, str | int | float | bool | None]
    wall_time: float
    monotonic: float
    redacted: list[str]
    simulated: bool = False


class SequenceStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"


class BlockRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One block of a keyframe. `last_change` is the seq of the last record that allocated, shared,
    copied, released, cached or evicted it."""

    block: Count
    ref_count: Count
    filled: Count
    last_change: Place
    hash: str | None = None


class SequenceRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One unfinished sequence of a keyframe. `table` lists physical blocks by logical index.

    `last_token` is when the newest of its output tokens was drawn; None before the first.
    """

    sequence: Count
    request: str
    status: SequenceStatus
    computed: Count
    table: list[Count]
    preemptions: Count = 0
    parent: Count | None = None
    text: list[str] | None = None
    output_tokens: Count = 0
    last_token: float | None = None


class RequestRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One unfinished request of a keyframe. `first_token` is when that was drawn, if it was."""

    request: str
    prompt_tokens: Count
    n: Count
    max_tokens: Count
    arrived: float
    preemptions: Count = 0
    recomputed_tokens: Count = 0
    first_token: float | None = None


class Totals(msgspec.Struct):
    """Counters and latencies since the engine started, as totals.py counts them.

    Seconds in the histograms, but for `request_preemptions`. Times of tokens are the ends of the steps
    that drew them. `request_duration` leaves out requests that were aborted; `request_preemptions`
    has all that finished.
    """

    steps: Count = 0
    allocated_free: Count = 0
    allocated_evicted: Count = 0
    released: Count = 0
    evicted: Count = 0
    cow_copies: Count = 0
    allocation_failures: Count = 0
    prefill_tokens: Count = 0
    decode_tokens: Count = 0
    recompute_tokens: Count = 0
    requests_added: Count = 0
    scheduled_first: Count = 0
    scheduled_resumed: Count = 0
    prefix_queried_tokens: Count = 0
    prefix_hit_tokens: Count = 0
    preemptions: dict[str, Count] = {}
    requests_finished: dict[str, Count] = {}
    time_to_first_token: Histogram = msgspec.field(default_factory=histograms.first_token_seconds)
    inter_token_latency: Histogram = msgspec.field(default_factory=histograms.inter_token_seconds)
    request_duration: Histogram = msgspec.field(default_factory=histograms.request_seconds)
    queue_duration: Histogram = msgspec.field(default_factory=histograms.queue_seconds)
    step_duration: Histogram = msgspec.field(default_factory=histograms.step_seconds)
    request_preemptions: Histogram = msgspec.field(default_factory=histograms.preemptions)


class Keyframe(msgspec.Struct, frozen=True, tag_field="type", tag="keyframe"):
    """PoolState as data: everything after record `seq`. Blocks that were never touched are left out."""

    seq: Place
    step: Place
    time: float
    blocks: list[BlockRow]
    sequences: list[SequenceRow]
    requests: list[RequestRow]
    totals: Totals


Record = Header | Keyframe | Step | Gap | Heartbeat
