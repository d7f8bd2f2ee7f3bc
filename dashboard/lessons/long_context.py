"""One tenant with a long document beside many short requests: whose pool is it, and who waits."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Bars, Change, Lesson, Moment, Number, Runs, Step, first
from engine.events.records import Computed, RequestAdded, RequestFinished, SequenceScheduled

TRACE = "long-context"


@dataclass(frozen=True)
class Wait:
    """A short request: steps from its arrival to its first scheduling."""

    request: str
    steps: int
    after: bool


@dataclass(frozen=True)
class Facts:
    """`full` is the record after which the tenant's prompt is computed."""

    request: str
    prompt: int
    shorts: int
    short_prompt: float
    block_size: int
    num_blocks: int
    arrived: int
    full: int
    ended: int
    chunks: tuple[int, ...]
    blocks: int
    others: int
    waits: tuple[Wait, ...]
    longest_queue: int
    queue_seq: int
    free_at_queue: int


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    asked = [(step, event) for step, event in run.events(RequestAdded)]
    came, tenant = max(asked, key=lambda pair: pair[1].prompt_tokens)
    scheduled = {
        event.sequence: step for step, event in reversed(list(run.events(SequenceScheduled)))
    }
    chunks = [
        (step.seq, event.tokens)
        for step, event in run.events(Computed)
        if event.sequence == tenant.sequence and event.tokens > 1
    ]
    full = chunks[-1][0]
    state = run.state_at(full)
    held = len(state.sequences[tenant.sequence].table)
    ended = first(
        (s.seq for s, e in run.events(RequestFinished) if e.request == tenant.request),
        "end of the long request",
    )
    there = [step for step in run.steps if came.seq <= step.seq < ended]
    queue = max(there, key=lambda step: step.queues.waiting)
    shorts = [event for _, event in asked if event is not tenant]
    return Facts(
        request=tenant.request,
        prompt=tenant.prompt_tokens,
        shorts=len(shorts),
        short_prompt=sum(event.prompt_tokens for event in shorts) / len(shorts),
        block_size=run.block_size,
        num_blocks=run.header.num_blocks,
        arrived=came.seq,
        full=full,
        ended=ended,
        chunks=tuple(tokens for _, tokens in chunks),
        blocks=held,
        others=state.active_blocks - held,
        waits=tuple(
            Wait(event.request, scheduled[event.sequence].step - step.step, step.seq > came.seq)
            for step, event in asked
            if event is not tenant
        ),
        longest_queue=queue.queues.waiting,
        queue_seq=queue.seq,
        free_at_queue=run.state_at(queue.seq).free_blocks,
    )


def _share(facts: Facts) -> Step:
    return Step(
        title="The long prompt",
        tell=f"{facts.shorts} requests with prompts of about {facts.short_prompt:.0f} tokens share a "
        f"pool of {facts.num_blocks} blocks of {facts.block_size}. Now {facts.request} comes: a "
        f"document of {facts.prompt:,} tokens.",
        ask="How many blocks does its prompt take?",
        question=Number(facts.blocks, "block", slack=2),
        because=f"{facts.prompt:,} / {facts.block_size}, rounded up: "
        f"{facts.blocks / facts.num_blocks:.0%} of the pool for one request. All others together hold {facts.others} at that moment.",
        at=Moment(TRACE, facts.arrived - 1),
        shows=Moment(TRACE, facts.full, facts.request),
    )


def _in_chunks(facts: Facts) -> Step:
    return Step(
        title="In chunks",
        tell="Its prompt is not computed in one step: that would hold up all who decode. A step gives "
        f"a long prompt {max(facts.chunks)} tokens at most.",
        ask="In how many steps is its prompt computed?",
        question=Number(len(facts.chunks), "step", slack=1),
        because=f"Chunks of {', '.join(map(str, facts.chunks))} tokens; between them the short ones "
        "get a token in every step.",
        at=Moment(TRACE, facts.arrived, facts.request),
        shows=Moment(TRACE, facts.full, facts.request),
    )


def _queue(facts: Facts) -> Step:
    waits = [wait for wait in facts.waits if wait.after]
    waited = [wait for wait in waits if wait.steps > 0]
    rows = [(wait.request, _WAIT, float(wait.steps)) for wait in facts.waits]
    return Step(
        title="Who waits",
        tell=f"{len(waits)} short requests come after it. Each needs two or three blocks to start.",
        ask="How many of them have to wait in the queue before they start?",
        question=Number(len(waited), "request", slack=1),
        because=f"Up to {facts.longest_queue} at once, the longest for "
        f"{max(wait.steps for wait in facts.waits)} steps, while {facts.free_at_queue} blocks are "
        "free. Nobody who came before it waited.",
        at=Moment(TRACE, facts.full, facts.request),
        shows=Moment(TRACE, facts.queue_seq, facts.request),
        exhibit=Bars("steps in the queue", tuple(rows), {_WAIT: "preempted"}),
    )


_WAIT = "waited"

LESSON = Lesson(
    name="long-context",
    title="The long-context tenant",
    claim="One long prompt takes most of the pool, and short requests that come later wait for it.",
    traces=(TRACE,),
    read=read,
    steps=(_share, _in_chunks, _queue),
    claims={
        "the tenant's blocks are its tokens over the block size, rounded up": lambda f: (
            f.blocks == -(-f.prompt // f.block_size)
        ),
        "one request holds most of the pool": lambda f: f.blocks > f.num_blocks / 2 > f.others,
        "its prompt is computed in chunks": lambda f: (
            len(f.chunks) > 1 and sum(f.chunks) == f.prompt
        ),
        "nobody before it waited": lambda f: all(w.steps == 0 for w in f.waits if not w.after),
        "short ones after it wait": lambda f: sum(w.steps > 1 for w in f.waits if w.after) >= 2,
        "the queue is there while the tenant is": lambda f: (
            f.longest_queue > 0 and f.arrived < f.queue_seq < f.ended
        ),
    },
    change=Change(
        "How many such tenants does a pool bear? Refuse what is too long with a smaller "
        "--max-model-len, and watch the queue.",
        "glasspool serve --num-gpu-blocks-override 96 --max-model-len 512 "
        "--long-prefill-token-threshold 256",
    ),
)
