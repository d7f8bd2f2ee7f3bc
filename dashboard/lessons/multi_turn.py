"""A conversation sends all that was said each time, and computes only what is new."""

from dataclasses import dataclass

from dashboard.lessons.lesson import Bars, Change, Lesson, LessonError, Moment, Number, Runs, Step
from engine.events.records import PrefixLookup, RequestAdded, RequestFinished

TRACE = "multi-turn"


@dataclass(frozen=True)
class Turn:
    """One request of the conversation: its prompt, what of it was cached, and its answer's length."""

    seq: int
    request: str
    prompt: int
    hit: int
    answer: int

    @property
    def computed(self) -> int:
        return self.prompt - self.hit


@dataclass(frozen=True)
class Facts:
    """`cached_before[i]` is how many cached blocks wait for turn i."""

    block_size: int
    turns: tuple[Turn, ...]
    cached_before: tuple[int, ...]

    @property
    def prompts(self) -> int:
        return sum(turn.prompt for turn in self.turns)

    @property
    def hits(self) -> int:
        return sum(turn.hit for turn in self.turns)


def read(runs: Runs) -> Facts:
    run = runs[TRACE]
    asked = {event.sequence: event for _, event in run.events(RequestAdded)}
    answers = {event.request: event.output_tokens for _, event in run.events(RequestFinished)}
    turns = tuple(
        Turn(
            step.seq,
            asked[event.sequence].request,
            event.queried,
            event.hit,
            answers[asked[event.sequence].request],
        )
        for step, event in run.events(PrefixLookup)
        if not event.resumed
    )
    if len(turns) < 3:
        raise LessonError("this trace has no conversation of three turns")
    cached = tuple(run.state_at(turn.seq - 1).cached_blocks for turn in turns)
    return Facts(run.block_size, turns, cached)


def _turn(number: int, facts: Facts) -> Step:
    before, turn = facts.turns[number - 1], facts.turns[number]
    known = before.prompt + before.answer
    return Step(
        title=f"Turn {number + 1}",
        tell=f"Turn {number} had a prompt of {before.prompt} tokens and an answer of "
        f"{before.answer}. {turn.request} sends both again, and a new question: {turn.prompt} tokens. "
        f"{facts.cached_before[number]} blocks are cached.",
        ask="How many of these tokens are not computed again?",
        question=Number(turn.hit, "token", slack=facts.block_size // 2),
        because=f"{turn.hit // facts.block_size} whole blocks of the {known} tokens that were there "
        "before; the answer's blocks are as good as the prompt's. The last, partial block is computed.",
        at=Moment(TRACE, turn.seq - 1),
        shows=Moment(TRACE, turn.seq, turn.request),
    )


def _second(facts: Facts) -> Step:
    return _turn(1, facts)


def _third(facts: Facts) -> Step:
    return _turn(2, facts)


def _whole(facts: Facts) -> Step:
    share = 100 * facts.hits / facts.prompts
    rows = [
        (turn.request, part, float(tokens))
        for turn in facts.turns
        for part, tokens in ((_FOUND, turn.hit), (_COMPUTED, turn.computed))
        if tokens
    ]
    last = facts.turns[-1]
    return Step(
        title="The whole conversation",
        tell=f"Prompts grow with each turn: {', '.join(str(turn.prompt) for turn in facts.turns)} "
        "tokens.",
        ask="What percentage of all prompt tokens was found in the cache?",
        question=Number(share, unit="%", slack=5),
        because=f"What is computed stays at {', '.join(str(turn.computed) for turn in facts.turns)} "
        "tokens a turn, while the prompts grow. The share that is found grows with them.",
        at=Moment(TRACE, last.seq, last.request),
        shows=Moment(TRACE, last.seq, last.request),
        exhibit=Bars("tokens of the prompt", tuple(rows), {_FOUND: "cached", _COMPUTED: "used"}),
    )


_FOUND, _COMPUTED = "found", "computed"

LESSON = Lesson(
    name="multi-turn",
    title="A conversation",
    claim="Each turn sends all that was said, and computes only what is new.",
    traces=(TRACE,),
    read=read,
    steps=(_second, _third, _whole),
    claims={
        "the first turn finds nothing": lambda f: f.turns[0].hit == 0,
        "each turn begins with the one before and its answer": lambda f: all(
            later.prompt > before.prompt + before.answer
            for before, later in zip(f.turns, f.turns[1:], strict=False)
        ),
        "hits grow from turn to turn": lambda f: all(
            later.hit > before.hit for before, later in zip(f.turns, f.turns[1:], strict=False)
        ),
        "a turn finds all whole blocks of what has KV": lambda f: all(
            # The answer's last token was drawn and never computed.
            later.hit == (before.prompt + before.answer - 1) // f.block_size * f.block_size
            for before, later in zip(f.turns, f.turns[1:], strict=False)
        ),
        "what is computed does not grow with the prompt": lambda f: (
            f.turns[-1].computed < f.turns[-1].prompt / 2
        ),
    },
    change=Change(
        "Put the time of day in front of every prompt, as many applications do, and watch all hits go.",
        "glasspool serve --num-gpu-blocks-override 48 --record-text --record turns.jsonl.zst",
    ),
)
