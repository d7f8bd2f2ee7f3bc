"""Blocks of a finished or running request serve the next one that begins alike; and why a miss is one."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.lessons.lesson import Bars, Change, Lesson, Moment, Number, Runs, Step, first
from engine.events.records import LookupStop, PrefixLookup, RequestAdded

TRACE = "prefix-cache"


@dataclass(frozen=True)
class Lookup:
    """One request's first lookup, at record `seq`. `alike` counts the tokens with which its prompt
    begins like the first request's, `ends_alike` those with which it ends like it."""

    seq: int
    request: str
    queried: int
    hit: int
    why: LookupStop
    alike: int
    ends_alike: int


@dataclass(frozen=True)
class Facts:
    """`later` begins like the first, `other` does not, `again` is the first's prompt once more."""

    block_size: int
    lookups: tuple[Lookup, ...]
    later: Lookup
    other: Lookup
    again: Lookup
    tiny: Lookup

    @property
    def queried(self) -> int:
        return sum(lookup.queried for lookup in self.lookups)

    @property
    def hit(self) -> int:
        return sum(lookup.hit for lookup in self.lookups)


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    prompts = {e.sequence: (e.request, e.prompt_text or []) for _, e in run.events(RequestAdded)}
    head = first(prompts.values(), "request")[1]
    lookups = [
        _lookup(step.seq, event, *prompts[event.sequence], head)
        for step, event in run.events(PrefixLookup)
        if not event.resumed
    ]
    size = run.block_size
    rest = lookups[1:]
    whole = len(head)
    return Facts(
        block_size=size,
        lookups=tuple(lookups),
        later=first(
            (found for found in rest if size <= found.alike < whole),
            "request that begins like the first",
        ),
        other=first(
            (found for found in rest if found.alike < size <= found.ends_alike),
            "request that only begins otherwise",
        ),
        again=first(
            (found for found in rest if found.alike == found.queried == whole),
            "request that is the first one again",
        ),
        tiny=first((found for found in rest if found.queried < size), "request below a block"),
    )


def _lookup(
    seq: int, event: PrefixLookup, request: str, prompt: Sequence[str], head: Sequence[str]
) -> Lookup:
    return Lookup(
        seq,
        request,
        event.queried,
        event.hit,
        event.why,
        _alike(prompt, head),
        _alike(prompt[::-1], head[::-1]),
    )


def _alike(a: Sequence[str], b: Sequence[str]) -> int:
    for number, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return number
    return min(len(a), len(b))


def _hit(facts: Facts) -> Step:
    later, size = facts.later, facts.block_size
    return Step(
        title="The same system prompt",
        tell=f"{facts.lookups[0].request} has a long system prompt, and is still decoding. "
        f"{later.request} comes with the same one and another question: {later.queried} tokens, of "
        f"which the first {later.alike} are the same.",
        ask="How many of its tokens need no computation?",
        question=Number(later.hit, "token", slack=size // 4),
        because=f"Only whole blocks are shared: {later.hit // size} × {size}. Block "
        f"{later.hit // size + 1} begins alike but ends otherwise, and so it is computed anew.",
        at=Moment(TRACE, later.seq - 1, facts.lookups[0].request),
        shows=Moment(TRACE, later.seq, later.request),
    )


def _miss(facts: Facts) -> Step:
    other = facts.other
    return Step(
        title="Other first words",
        tell=f"{other.request} has almost the same prompt. Only its first words differ; its last "
        f"{other.ends_alike} of {other.queried} tokens are those of {facts.lookups[0].request}.",
        ask="How many of its tokens does it find in the cache?",
        question=Number(other.hit, "token"),
        because="A block's hash covers its own tokens and the hash of the block before it, as KV "
        "depends on everything before. One word at the start makes all that follow a miss. So what "
        "changes belongs at the end of a prompt.",
        at=Moment(TRACE, other.seq - 1),
        shows=Moment(TRACE, other.seq, other.request),
    )


def _same(facts: Facts) -> Step:
    again = facts.again
    return Step(
        title="The very same prompt again",
        tell=f"{again.request} has exactly the prompt of {facts.lookups[0].request}, {again.queried} "
        "tokens, and all its blocks are still cached.",
        ask="How many of its tokens does it still compute?",
        question=Number(again.queried - again.hit, "token", slack=2),
        because="The last token must run through the model, or there is nothing to draw the next one "
        f"from; and only whole blocks are shared. The engine says why it stopped: {_words(again)}.",
        at=Moment(TRACE, again.seq - 1),
        shows=Moment(TRACE, again.seq, again.request),
    )


def _words(lookup: Lookup) -> str:
    return {
        LookupStop.MISS: "no block of this content",
        LookupStop.SHORTER_THAN_BLOCK: "shorter than a block",
        LookupStop.LAST_TOKEN_KEPT: "the last token is kept",
        LookupStop.OFF: "the cache is off",
    }[lookup.why]


def _all(facts: Facts) -> Step:
    rows = [
        (lookup.request, part, float(tokens))
        for lookup in facts.lookups
        for part, tokens in ((_FOUND, lookup.hit), (_COMPUTED, lookup.queried - lookup.hit))
        if tokens
    ]
    share = 100 * facts.hit / facts.queried
    return Step(
        title="All prompts together",
        tell=f"{len(facts.lookups)} prompts with {facts.queried} tokens came. The last one, "
        f"{facts.tiny.request}, has {facts.tiny.queried} tokens and can never hit: it is "
        f"{_words(facts.tiny)}.",
        ask="What percentage of all prompt tokens was found in the cache?",
        question=Number(share, unit="%", slack=5),
        because=f"{facts.hit} of {facts.queried} tokens were never run through the model.",
        at=Moment(TRACE, facts.tiny.seq, facts.tiny.request),
        shows=Moment(TRACE, facts.tiny.seq, facts.tiny.request),
        exhibit=Bars("tokens of the prompt", tuple(rows), {_FOUND: "cached", _COMPUTED: "used"}),
    )


_FOUND, _COMPUTED = "found", "computed"

LESSON = Lesson(
    name="prefix-cache",
    title="The prefix cache",
    claim="A prompt that begins alike is not computed again; a word at its start makes all a miss.",
    traces=(TRACE,),
    read=read,
    steps=(_hit, _miss, _same, _all),
    claims={
        "a hit covers the whole blocks that are alike": lambda f: (
            f.later.hit == f.later.alike // f.block_size * f.block_size > 0
        ),
        "other first words share nothing": lambda f: (
            f.other.hit == 0
            and f.other.why is LookupStop.MISS
            and f.other.ends_alike > f.other.queried // 2
        ),
        "the same prompt keeps its last token to compute": lambda f: (
            f.again.hit == (f.again.queried - 1) // f.block_size * f.block_size
        ),
        "a prompt below a block is not looked up": lambda f: (
            f.tiny.hit == 0 and f.tiny.why is LookupStop.SHORTER_THAN_BLOCK
        ),
        "the first request finds nothing": lambda f: f.lookups[0].hit == 0,
        "half of all prompt tokens are found": lambda f: 2 * f.hit > f.queried,
    },
    change=Change(
        "Switch the cache off and compare the time to the first token: the same requests, simulated. Or "
        "put the question before the system prompt in your own, and watch the hits go.",
        f"glasspool simulate --from demo_data/{TRACE}.jsonl.zst --vary enable_prefix_caching=on,off",
    ),
)
