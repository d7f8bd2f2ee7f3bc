"""The pool runs dry: one sequence loses its blocks so that an older one can go on."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Change, Choice, Lesson, Moment, Number, Runs, Step, first
from dashboard.lessons.run import Run
from dashboard.readable import plural
from engine.events.records import AllocationFailed, Computed, Preempt, SequenceStatus

TRACE = "pool-runs-dry"


@dataclass(frozen=True)
class Facts:
    """The first preemption, at record `seq`. `running` is in the order of arrival."""

    seq: int
    num_blocks: int
    running: tuple[str, ...]
    waiting: int
    free_before: int
    needy: str
    victim: str
    blocks: int
    lost: int
    gained: int
    failed_at: tuple[int, ...]
    resumed: int
    recomputed: int
    younger_victims: int
    victims: int


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    step, event = first(run.events(Preempt), "preemption")
    state = run.state_at(step.seq - 1)
    names = {number: sequence.request for number, sequence in state.sequences.items()}
    after = run.state_at(step.seq)
    resumed, recomputed = _resumption(run, step.seq, event.sequence)
    all_victims = [event for _, event in run.events(Preempt)]
    return Facts(
        seq=step.seq,
        num_blocks=run.header.num_blocks,
        running=tuple(
            sequence.request
            for _, sequence in sorted(state.sequences.items())
            if sequence.status is SequenceStatus.RUNNING
        ),
        waiting=state.queues.waiting,
        free_before=state.free_blocks + state.cached_blocks,
        needy=names[event.victim_of],
        victim=names[event.sequence],
        blocks=event.blocks_released,
        lost=event.tokens_lost,
        gained=len(after.sequences[event.victim_of].table)
        - len(state.sequences[event.victim_of].table),
        failed_at=tuple(s.seq for s, _ in run.events(AllocationFailed)),
        resumed=resumed,
        recomputed=recomputed,
        younger_victims=sum(event.sequence >= event.victim_of for event in all_victims),
        victims=len(all_victims),
    )


def _resumption(run: Run, preempted: int, sequence: int) -> tuple[int, int]:
    """When a preempted sequence computes again, and how many tokens it had computed before."""
    for step, event in run.events(Computed):
        if step.seq > preempted and event.sequence == sequence:
            return step.seq, event.recomputed
    return first((), f"resumption of sequence {sequence}")


def _who(facts: Facts) -> Step:
    return Step(
        title="No block left",
        tell=f"{len(facts.running)} requests decode, {plural(facts.free_before, 'block')} of "
        f"{facts.num_blocks} are free. {facts.needy} fills the last slot of its last block and needs "
        f"a new one. The oldest request is {facts.running[0]}, the youngest {facts.running[-1]}.",
        ask="Who has to give up blocks?",
        question=Choice(facts.running, facts.running.index(facts.victim)),
        because=f"First come, first served: the youngest one that runs. {facts.needy} is older and "
        f"goes on. The blocks that {facts.victim} lost are marked.",
        at=Moment(TRACE, facts.seq - 1, facts.needy),
        shows=Moment(TRACE, facts.seq),
    )


def _how_many(facts: Facts) -> Step:
    return Step(
        title="One block was needed",
        tell=f"{facts.needy} needs a single block. {facts.victim} is preempted for it.",
        ask=f"How many blocks does {facts.victim} give up?",
        question=Number(facts.blocks, "block"),
        because=f"All of them: a sequence computes with all its KV or with none. {facts.needy} took "
        f"{plural(facts.gained, 'block')}, the others are free for the next ones.",
        at=Moment(TRACE, facts.seq - 1, facts.victim),
        shows=Moment(TRACE, facts.seq, facts.needy),
    )


def _again(facts: Facts) -> Step:
    return Step(
        title="When it comes back",
        tell=f"{facts.victim} had {facts.lost} tokens computed. Its text is kept; its KV is gone. It "
        "waits until there is room for all of them at once.",
        ask="How many tokens does it compute for the second time when it resumes?",
        question=Number(facts.recomputed, "token", slack=2),
        because=f"Everything that it had. It waited {facts.resumed - facts.seq} steps for room. "
        f"Without the prefix cache nothing is found again.",
        at=Moment(TRACE, facts.resumed - 1),
        shows=Moment(TRACE, facts.resumed, facts.victim),
    )


LESSON = Lesson(
    name="pool-runs-dry",
    title="The pool runs dry",
    claim="When no block is left the youngest running request loses all of its blocks.",
    traces=(TRACE,),
    read=read,
    steps=(_who, _how_many, _again),
    claims={
        "no block is free before the first preemption": lambda f: f.free_before == 0,
        "an allocation fails in that very step": lambda f: f.failed_at[:1] == (f.seq,),
        "the victim is the youngest that runs": lambda f: f.victim == f.running[-1],
        "no victim of the whole run is older than who needed the block": lambda f: (
            f.younger_victims == f.victims > 0
        ),
        "all blocks go for the sake of one": lambda f: f.blocks > f.gained == 1,
        "all lost tokens are computed again": lambda f: f.recomputed == f.lost,
    },
    change=Change(
        "With the prefix cache a resumed request may find its own blocks again. Simulate the same "
        "requests with it, and compare the recomputed tokens.",
        f"glasspool simulate --from demo_data/{TRACE}.jsonl.zst --vary enable_prefix_caching=on,off",
    ),
)
