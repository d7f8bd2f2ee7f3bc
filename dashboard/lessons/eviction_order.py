"""What is cached goes when others need its blocks: least recently used first, tail before head."""

from dataclasses import dataclass

from dashboard.lessons.lesson import (
    Change,
    Choice,
    Lesson,
    Moment,
    Number,
    Runs,
    Step,
    Table,
    first,
)
from engine.events import PoolState
from engine.events.records import (
    AnyEvent,
    Cache,
    Evict,
    PrefixLookup,
    RequestAdded,
    RequestFinished,
)
from engine.events.records import Step as Record

TRACE = "eviction-order"


@dataclass(frozen=True)
class Eviction:
    """A block's content goes at record `seq`: that of entry `index` of a request's table."""

    seq: int
    block: int
    request: str
    index: int


@dataclass(frozen=True)
class Again:
    """A prompt that was asked before, by `like`: what it found, of how many tokens."""

    seq: int
    request: str
    like: str
    queried: int
    hit: int
    heads_left: int


@dataclass(frozen=True)
class Facts:
    """`cached` are the requests whose blocks are cached before the first eviction, oldest first."""

    block_size: int
    cached: tuple[str, ...]
    newcomer: str
    free_before: int
    evictions: tuple[Eviction, ...]
    last_index: int
    old: Again
    recent: Again

    @property
    def first(self) -> Eviction:
        return self.evictions[0]


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    content: dict[str, tuple[str, int]] = {}
    evictions: list[Eviction] = []
    lengths: dict[str, int] = {}
    heads: dict[str, int] = {}
    prompts: dict[tuple[str, ...], str] = {}
    likes: dict[int, tuple[str, str, int]] = {}
    again: list[Again] = []

    def before(state: PoolState, step: Record, event: AnyEvent) -> None:
        match event:
            case RequestAdded():
                text = tuple(event.prompt_text or ())
                like = prompts.setdefault(text, event.request)
                if like != event.request:
                    kept = heads[like] if like in heads else lengths[like]
                    likes[event.sequence] = (event.request, like, kept)
            case Cache():
                sequence, index = next(iter(state.owners[event.block].items()))
                request = state.sequences[sequence].request
                content.setdefault(event.hash, (request, index))
                lengths[request] = max(lengths.get(request, 0), index + 1)
            case Evict():
                request, index = content[event.hash]
                evictions.append(Eviction(step.seq, event.block, request, index))
                heads[request] = min(heads.get(request, index), index)
            case PrefixLookup() if event.sequence in likes and not event.resumed:
                request, like, kept = likes[event.sequence]
                again.append(Again(step.seq, request, like, event.queried, event.hit, kept))

    for _ in run.walk(before):
        pass
    goes = first(evictions, "eviction")
    state = run.state_at(goes.seq - 1)
    ended = [e.request for s, e in run.events(RequestFinished) if s.seq < goes.seq]
    newcomer = first(
        (e.request for s, e in run.events(RequestAdded) if s.seq == goes.seq),
        "request that needs the blocks of others",
    )
    return Facts(
        block_size=run.block_size,
        cached=tuple(ended),
        newcomer=newcomer,
        free_before=state.free_blocks,
        evictions=tuple(evictions),
        last_index=lengths[goes.request] - 1,
        old=first((a for a in again if a.like == goes.request), "old prompt that comes again"),
        recent=first((a for a in again if a.like == ended[-1]), "recent prompt that comes again"),
    )


def _whose(facts: Facts) -> Step:
    return Step(
        title="Whose blocks go first",
        tell=f"{len(facts.cached)} requests have ended, one after the other; their blocks stay cached. "
        f"{facts.newcomer} comes with a new prompt and needs more than the {facts.free_before} blocks "
        "that hold nothing.",
        ask="Whose content is dropped first?",
        question=Choice(facts.cached, facts.cached.index(facts.first.request)),
        because="The one that was used longest ago. Blocks without content were handed out before.",
        at=Moment(TRACE, facts.first.seq - 1),
        shows=Moment(TRACE, facts.first.seq, facts.newcomer),
    )


_TAIL, _HEAD, _ELSE = "The last one of its table", "The first one", "One in the middle"


def _which(facts: Facts) -> Step:
    index, last = facts.first.index, facts.last_index
    right = _TAIL if index == last else _HEAD if index == 0 else _ELSE
    options = (_HEAD, _ELSE, _TAIL)
    rows = tuple((e.seq, e.request, e.index, e.block) for e in facts.evictions[:6])
    return Step(
        title="Which of its blocks",
        tell=f"{facts.first.request} left {last + 1} cached blocks: a chain, in which each hash needs "
        "the one before.",
        ask="Which of them goes first?",
        question=Choice(options, options.index(right)),
        because="A tail without its head can never be found again, a head without its tail can. So "
        "the tail goes first, and what is left stays useful.",
        at=Moment(TRACE, facts.first.seq - 1),
        shows=Moment(TRACE, facts.first.seq, None, facts.first.block),
        exhibit=Table(("record", "content of", "logical block", "physical block"), rows),
    )


def _old(facts: Facts) -> Step:
    old = facts.old
    return Step(
        title="The old prompt again",
        tell=f"{old.request} asks what {old.like} asked: {old.queried} tokens. Of its "
        f"{facts.last_index + 1} cached blocks, {old.heads_left} from the head on have not been "
        "overwritten.",
        ask="How many tokens does it find?",
        question=Number(old.hit, "token"),
        because=f"{old.hit // facts.block_size} × {facts.block_size}: the head that survived. The rest "
        "is computed again.",
        at=Moment(TRACE, old.seq - 1),
        shows=Moment(TRACE, old.seq, old.request),
    )


def _recent(facts: Facts) -> Step:
    recent = facts.recent
    whole = (recent.queried - 1) // facts.block_size * facts.block_size
    return Step(
        title="A recent prompt again",
        tell=f"{recent.request} asks what {recent.like} asked: {recent.queried} tokens. That one was "
        "the last to end before the pool was full.",
        ask="How many tokens does it find?",
        question=Number(recent.hit, "token", slack=facts.block_size // 4),
        because=f"{recent.hit} of the {whole} that whole blocks can give: it was used more recently "
        "than all that has been dropped.",
        at=Moment(TRACE, recent.seq - 1),
        shows=Moment(TRACE, recent.seq, recent.request),
    )


def _in_order(facts: Facts) -> bool:
    """Each request's blocks go from the tail on, one after the other."""
    seen: dict[str, int] = {}
    for eviction in facts.evictions:
        if seen.get(eviction.request, eviction.index + 1) != eviction.index + 1:
            return False
        seen[eviction.request] = eviction.index
    return True


LESSON = Lesson(
    name="eviction-order",
    title="Eviction order",
    claim="The least recently used content goes first, and the tail of a prompt before its head.",
    traces=(TRACE,),
    read=read,
    steps=(_whose, _which, _old, _recent),
    claims={
        "the oldest request's content goes first": lambda f: f.first.request == f.cached[0],
        "its tail goes first": lambda f: f.first.index == f.last_index > 0,
        "each request loses its blocks from the tail on": _in_order,
        "the old prompt finds the head that is left": lambda f: (
            0 < f.old.hit == f.old.heads_left * f.block_size < f.old.queried - f.block_size
        ),
        "the recent prompt finds all whole blocks": lambda f: (
            f.recent.hit == (f.recent.queried - 1) // f.block_size * f.block_size
        ),
    },
    change=Change(
        "A pool of 24 blocks keeps all four prompts, one of 10 hardly any. Simulate both on this run's "
        "requests and compare the hits.",
        f"glasspool simulate --from demo_data/{TRACE}.jsonl.zst --vary num_gpu_blocks_override=10,14,24",
    ),
)
