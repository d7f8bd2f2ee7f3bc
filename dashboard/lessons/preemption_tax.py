"""Preemption says that the pool is too small; what it costs is work done twice, and waiting."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.lessons.lesson import Bars, Change, Lesson, Lines, Moment, Number, Runs, Step, first
from dashboard.lessons.run import Run
from engine.events.records import Preempt, RequestAdded, RequestFinished, Sampled

DRY, AMPLE = "pool-runs-dry", "pool-ample"


@dataclass(frozen=True)
class Outcome:
    """One run. `life` is how many steps each request was there, `peak` the most active blocks, `texts`
    what each sequence said."""

    num_blocks: int
    curve: tuple[int, ...]
    peak: int
    peak_seq: int
    preemptions: int
    first_preemption: int | None
    computed: int
    recomputed: int
    output: int
    steps: int
    life: tuple[tuple[str, int], ...]
    last_seq: int
    texts: Mapping[int, str]


@dataclass(frozen=True)
class Facts:
    dry: Outcome
    ample: Outcome

    @property
    def same_texts(self) -> int:
        """Answers that are the same to the letter in both runs."""
        return sum(text == self.ample.texts.get(name) for name, text in self.dry.texts.items())

    @property
    def slowest(self) -> str:
        """The request that preemption keeps longest, compared with the ample pool."""
        ample = dict(self.ample.life)
        return max(self.dry.life, key=lambda one: one[1] - ample[one[0]])[0]


def read(runs: Runs) -> Facts:
    return Facts(_outcome(runs[DRY]), _outcome(runs[AMPLE]))


def _outcome(run: Run) -> Outcome:
    curve = tuple(state.active_blocks for _, state in run.walk())
    arrived = {event.request: step.step for step, event in run.events(RequestAdded)}
    ended = {event.request: (step.step, event) for step, event in run.events(RequestFinished)}
    preempted = [step.seq for step, _ in run.events(Preempt)]
    first(ended, "finished request")
    texts: dict[int, str] = defaultdict(str)
    for _, event in run.events(Sampled):
        texts[event.sequence] += event.text
    return Outcome(
        num_blocks=run.header.num_blocks,
        curve=curve,
        peak=max(curve),
        peak_seq=run.steps[curve.index(max(curve))].seq,
        preemptions=len(preempted),
        first_preemption=preempted[0] if preempted else None,
        computed=sum(step.tokens.total for step in run.steps),
        recomputed=sum(step.tokens.recompute for step in run.steps),
        output=sum(event.output_tokens for _, event in ended.values()),
        steps=run.steps[-1].step + 1,
        life=tuple((name, ended[name][0] - arrived[name] + 1) for name in arrived),
        last_seq=run.steps[-1].seq,
        texts=texts,
    )


def _demand(facts: Facts) -> Step:
    dry, ample = facts.dry, facts.ample
    rows = [
        (name, float(step), float(blocks))
        for name, outcome in ((_name(ample), ample), (_name(dry), dry))
        for step, blocks in enumerate(outcome.curve)
    ]
    return Step(
        title="How much was missing",
        tell=f"The same requests on two pools. On {dry.num_blocks} blocks there are "
        f"{dry.preemptions} preemptions, on {ample.num_blocks} there are {ample.preemptions}.",
        ask="How many blocks would have been enough, that is, how many does the larger run hold at "
        "its peak?",
        question=Number(ample.peak, "block", slack=3),
        because=f"{ample.peak - dry.num_blocks} more than the smaller pool has. Preemptions are the "
        "signal that the pool is short; usage alone is not, as a full pool without them is well used.",
        at=Moment(DRY, dry.first_preemption or dry.peak_seq),
        shows=Moment(AMPLE, ample.peak_seq),
        exhibit=Lines(
            "step", "active blocks", tuple(rows), {_name(ample): "used", _name(dry): "preempted"}
        ),
    )


def _name(outcome: Outcome) -> str:
    return f"{outcome.num_blocks} blocks"


def _work(facts: Facts) -> Step:
    dry, ample = facts.dry, facts.ample
    share = 100 * dry.recomputed / ample.computed
    rows = [
        (_name(outcome), part, float(tokens))
        for outcome in (ample, dry)
        for part, tokens in (
            (_ONCE, outcome.computed - outcome.recomputed),
            (_TWICE, outcome.recomputed),
        )
        if tokens
    ]
    return Step(
        title="The tax in work",
        tell=f"Both runs give the same {dry.output} tokens of output. With room enough "
        f"{ample.computed:,} tokens are run through the model, prompts among them.",
        ask="How many percent more does the small pool compute?",
        question=Number(share, unit="%", slack=5),
        because=f"{dry.recomputed} tokens were computed more than once, and nobody asked for them.",
        at=Moment(DRY, dry.last_seq - 1),
        shows=Moment(DRY, dry.last_seq - 1),
        exhibit=Bars("tokens computed", tuple(rows), {_ONCE: "used", _TWICE: "preempted"}),
    )


_ONCE, _TWICE = "for the first time", "again"


def _waiting(facts: Facts) -> Step:
    name = facts.slowest
    ample, dry = dict(facts.ample.life)[name], dict(facts.dry.life)[name]
    return Step(
        title="The tax in time",
        tell=f"On the large pool {name} is there for {ample} steps, from its arrival to its end.",
        ask="For how many steps is it there on the small pool?",
        question=Number(dry, "step", slack=max(2, dry // 10)),
        because=f"{dry / ample:.1f} times as long. {facts.same_texts} of {len(facts.dry.texts)} answers "
        "are the same to the letter in both runs: preemption costs time, not correctness.",
        at=Moment(AMPLE, facts.ample.peak_seq, name),
        shows=Moment(DRY, facts.dry.first_preemption or 0, name),
    )


LESSON = Lesson(
    name="preemption-tax",
    title="Preemption and its tax",
    claim="Preemptions say that the pool is too small; the price is work done twice, and waiting.",
    traces=(DRY, AMPLE),
    read=read,
    steps=(_demand, _work, _waiting),
    claims={
        "the small pool preempts, the ample one does not": lambda f: (
            f.dry.preemptions > 0 == f.ample.preemptions
        ),
        "the demand is above the small pool and within the ample one": lambda f: (
            f.dry.num_blocks < f.ample.peak <= f.ample.num_blocks
        ),
        "the small pool is used to its last block": lambda f: f.dry.peak == f.dry.num_blocks,
        "what is computed more is what is computed again": lambda f: (
            f.dry.computed - f.ample.computed == f.dry.recomputed > 0 == f.ample.recomputed
        ),
        "the output is as long": lambda f: f.dry.output == f.ample.output > 0,
        "every answer is the same to the letter": lambda f: (
            f.same_texts == len(f.dry.texts) == len(f.dry.life)
        ),
        "no request ends sooner on the small pool, and one much later": lambda f: (
            all(dict(f.dry.life)[name] >= steps for name, steps in f.ample.life)
            and dict(f.dry.life)[f.slowest] > 1.2 * dict(f.ample.life)[f.slowest]
        ),
    },
    change=Change(
        "Find the smallest pool without preemption: the same requests on other pools, simulated with "
        "the cost of this run's steps.",
        f"glasspool simulate --from demo_data/{DRY}.jsonl.zst --vary num_gpu_blocks_override=34,42,50,80",
        compare=(DRY, AMPLE),
    ),
)
