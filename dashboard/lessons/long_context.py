"""One tenant with a long document beside many short requests: whose pool is it, and who waits."""

from collections import Counter
from dataclasses import dataclass

from dashboard.lessons.lesson import Bars, Change, Lesson, Moment, Number, Runs, Step, first
from dashboard.readable import plural
from engine.events.records import Computed, RequestAdded, RequestFinished, SequenceStatus

TRACE = "long-context"


@dataclass(frozen=True)
class Wait:
    """A short request: steps at whose end it waited for its start, or preempted for its return.

    after: it came after the long one.
    """

    request: str
    waiting: int
    preempted: int
    after: bool

    @property
    def held_up(self) -> bool:
        return self.waiting + self.preempted > 0


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
    held: Counter[tuple[str, SequenceStatus]] = Counter(
        (sequence.request, sequence.status)
        for _, state in run.walk()
        for sequence in state.sequences.values()
    )
    chunks = [
        (step.seq, event.tokens)
        for step, event in run.events(Computed)
        if event.sequence == tenant.sequence and event.tokens > 1
    ]
    full = chunks[-1][0]
    state = run.state_at(full)
    blocks = len(state.sequences[tenant.sequence].table)
    ended = first(
        (s.seq for s, e in run.events(RequestFinished) if e.request == tenant.request),
        "end of the long request",
    )
    there = [step for step in run.steps if came.seq <= step.seq < ended]
    queue = max(there, key=lambda step: step.queues.waiting + step.queues.preempted)
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
        blocks=blocks,
        others=state.active_blocks - blocks,
        waits=tuple(
            Wait(
                event.request,
                held[event.request, SequenceStatus.WAITING],
                held[event.request, SequenceStatus.PREEMPTED],
                step.seq > came.seq,
            )
            for step, event in asked
            if event is not tenant
        ),
        longest_queue=queue.queues.waiting + queue.queues.preempted,
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
        f"{100 * facts.blocks / facts.num_blocks:.0f} % of the pool for one request. All others together "
        f"hold {facts.others} at that moment.",
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
    after = [wait for wait in facts.waits if wait.after]
    before = [wait for wait in facts.waits if not wait.after]
    rows = [
        (wait.request, part, float(steps))
        for wait in facts.waits
        for part, steps in ((_WAITING, wait.waiting), (_PREEMPTED, wait.preempted))
    ]
    return Step(
        title="Who waits",
        tell=f"{len(after)} short requests come after it. Each needs two blocks to start, and a few more "
        "as it grows.",
        ask="How many of them are held up: wait for their start, or lose their blocks?",
        question=Number(sum(wait.held_up for wait in after), "request", slack=1),
        because=f"When the queue is longest, the pool has {plural(facts.free_at_queue, 'block')} left: "
        f"most of it is one request's. Of the {len(before)} that came before it, "
        f"{sum(wait.held_up for wait in before)} are held up: first come, first served.",
        at=Moment(TRACE, facts.full, facts.request),
        shows=Moment(TRACE, facts.queue_seq, facts.request),
        exhibit=Bars("steps held up", tuple(rows), {_WAITING: "cached", _PREEMPTED: "preempted"}),
    )


_WAITING, _PREEMPTED = "before its start", "preempted"

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
        "nobody who came before it is held up": lambda f: (
            not any(w.held_up for w in f.waits if not w.after)
        ),
        "short ones after it wait or lose their blocks": lambda f: (
            sum(w.held_up for w in f.waits if w.after) >= 3
        ),
        "the queue is there while the tenant is": lambda f: (
            f.longest_queue > 0 and f.arrived < f.queue_seq < f.ended
        ),
    },
    change=Change(
        "From which size on is nobody held up? The same requests on larger pools, simulated. A smaller "
        "--max-model-len of `glasspool serve` refuses such a tenant.",
        f"glasspool simulate --from demo_data/{TRACE}.jsonl.zst "
        "--vary num_gpu_blocks_override=96,112,128,160",
    ),
)
