"""n = 4: the prompt is stored once, so memory does not quadruple."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Change, Lesson, Lines, Moment, Number, Runs, Step, first
from dashboard.lessons.run import Run
from engine.events.records import Fork, RequestAdded

SHARED, APART = "parallel-sampling", "four-requests"


@dataclass(frozen=True)
class Facts:
    """`forked` is the record whose end shares the prompt. Curves are active blocks after each step."""

    request: str
    block_size: int
    n: int
    prompt_tokens: int
    prompt_blocks: int
    forked: int
    active_after: int
    references_after: int
    last: int
    curve: tuple[int, ...]
    curve_apart: tuple[int, ...]
    apart_at: int
    copies_apart: int

    @property
    def peak(self) -> int:
        return max(self.curve)

    @property
    def peak_apart(self) -> int:
        return max(self.curve_apart)


def read(runs: Runs) -> Facts:
    run, apart = runs[SHARED], runs[APART]
    _, asked = first(run.events(RequestAdded), "request")
    step, _ = first(run.events(Fork), "fork")
    state = run.state_at(step.seq)
    curve, curve_apart = _active(run), _active(apart)
    return Facts(
        request=asked.request,
        block_size=run.block_size,
        n=asked.n,
        prompt_tokens=asked.prompt_tokens,
        prompt_blocks=-(-asked.prompt_tokens // run.block_size),
        forked=step.seq,
        active_after=state.active_blocks,
        references_after=state.references,
        last=run.steps[curve.index(max(curve))].seq,
        curve=curve,
        curve_apart=curve_apart,
        apart_at=apart.steps[curve_apart.index(max(curve_apart))].seq,
        copies_apart=sum(
            event.prompt_tokens == asked.prompt_tokens for _, event in apart.events(RequestAdded)
        ),
    )


def _active(run: Run) -> tuple[int, ...]:
    return tuple(state.active_blocks for _, state in run.walk())


def _fork(facts: Facts) -> Step:
    return Step(
        title="One prompt, four answers",
        tell=f"A client asks for n = {facts.n} answers to one prompt of {facts.prompt_tokens} tokens. "
        f"It takes {facts.prompt_blocks} blocks of {facts.block_size}. Once it has been computed it "
        f"becomes {facts.n} sequences.",
        ask=f"How many blocks do the {facts.n} sequences hold together, after the fork?",
        question=Number(facts.active_after, "block"),
        because=f"A fork allocates nothing: each new table points at the same "
        f"{facts.prompt_blocks} blocks. They are drawn as shared.",
        at=Moment(SHARED, facts.forked - 1),
        shows=Moment(SHARED, facts.forked, facts.request),
    )


def _references(facts: Facts) -> Step:
    return Step(
        title="Who counts",
        tell=f"{facts.active_after} blocks are active. Each has a ref count: how many table entries "
        "point at it.",
        ask="What do all ref counts sum to?",
        question=Number(facts.references_after, "reference"),
        because=f"{facts.n} tables of {facts.prompt_blocks} entries. A block goes back to the pool "
        "when its count is 0, so no sequence can free what another reads.",
        at=Moment(SHARED, facts.forked, facts.request),
        shows=Moment(SHARED, facts.forked, facts.request),
    )


def _peak(facts: Facts) -> Step:
    saved = 1 - facts.peak / facts.peak_apart
    rows = [
        (name, float(step), float(blocks))
        for name, curve in ((_ONE, facts.curve), (_FOUR, facts.curve_apart))
        for step, blocks in enumerate(curve)
    ]
    return Step(
        title="Does memory quadruple?",
        tell=f"Another run has the same prompt as {facts.copies_apart} requests of their own, without "
        f"prefix caching. At its peak it holds {facts.peak_apart} blocks.",
        ask=f"How many blocks does n = {facts.n} hold at its peak?",
        question=Number(facts.peak, "block", slack=2),
        because=f"{100 * saved:.0f} % less. Only the answers are stored {facts.n} times; the longer the "
        "prompt beside the answer, the more is saved.",
        at=Moment(APART, facts.apart_at),
        shows=Moment(SHARED, facts.last, facts.request),
        exhibit=Lines("step", "active blocks", tuple(rows), {_ONE: "shared", _FOUR: "used"}),
    )


_ONE, _FOUR = "n = 4", "four requests"

LESSON = Lesson(
    name="sharing",
    title="Sharing by n = 4",
    claim="Four answers to one prompt store the prompt once: memory does not quadruple.",
    traces=(SHARED, APART),
    read=read,
    steps=(_fork, _references, _peak),
    claims={
        "a fork allocates nothing": lambda f: f.active_after == f.prompt_blocks,
        "each prompt block is referenced n times": lambda f: (
            f.references_after == f.n * f.prompt_blocks and f.n == 4
        ),
        "n = 4 takes far less than four requests": lambda f: f.peak < 0.7 * f.peak_apart,
        "what is saved is the prompt's full blocks": lambda f: (
            f.peak_apart - f.peak == (f.n - 1) * (f.prompt_tokens // f.block_size)
        ),
        "both runs have the same prompts": lambda f: f.copies_apart == f.n,
    },
    change=Change(
        "Both runs side by side are on the page Compare. For an answer longer than the prompt less is "
        "saved: ask the same with max_tokens 400.",
        "glasspool serve --num-gpu-blocks-override 256 --no-enable-prefix-caching",
        compare=(SHARED, APART),
    ),
)
