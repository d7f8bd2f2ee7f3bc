"""What a lesson is: steps that ask first and then answer from the events of a recorded run.

    read(runs) -> facts          folds the traces, once
    steps[i](facts) -> Step      sentences, question and answer, all from the facts
    claims[name](facts) -> bool  what the lesson says, checked against its traces by the tests

Nothing here knows Streamlit, and no answer is written down anywhere.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dashboard.lessons.run import Run

F, T = TypeVar("F"), TypeVar("T")
Runs = Mapping[str, Run]
"""The lesson's traces by name (the file's name without its suffix)."""


@dataclass(frozen=True)
class Moment:
    """A place of a run to look at: its trace, the record, and what is to be selected there."""

    trace: str
    seq: int
    request: str | None = None
    block: int | None = None


@dataclass(frozen=True)
class Number:
    """A question for a number: of things (`noun`, singular), or in a `unit`.

    A guess is right where it is at most `slack` away from the answer.
    """

    answer: float
    noun: str = ""
    unit: str = ""
    slack: float = 0
    digits: int = 0

    def right(self, said: float) -> bool:
        return round(abs(said - self.shown) - self.slack, 6) <= 0

    @property
    def shown(self) -> float:
        """The answer as it is written."""
        return round(self.answer, self.digits)

    def words(self, said: float) -> str:
        return f"{said:,.{self.digits}f} {self.measure(said)}".rstrip()

    def measure(self, said: float = 0) -> str:
        """The unit, or the noun in its number."""
        return f"{self.noun}{'' if said == 1 else 's'}" if self.noun else self.unit

    @property
    def answer_words(self) -> str:
        return self.words(self.shown)


@dataclass(frozen=True)
class Choice:
    """A question with options, of which `answer` is the number of the right one."""

    options: tuple[str, ...]
    answer: int

    def __post_init__(self) -> None:
        if not 0 <= self.answer < len(self.options) or len(set(self.options)) < 2:
            raise ValueError(f"option {self.answer} of {self.options} is no answer")

    def right(self, said: int) -> bool:
        return said == self.answer

    def words(self, said: int) -> str:
        return self.options[said]

    @property
    def answer_words(self) -> str:
        return self.options[self.answer]


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, one a row: `parts` of a row stand end to end.

    `rows` are (name of the row, what the part is, value); `colours` gives each part the state of
    the pool whose colour it takes.
    """

    unit: str
    rows: tuple[tuple[str, str, float], ...]
    colours: Mapping[str, str]


@dataclass(frozen=True)
class Lines:
    """Curves over x: `rows` are (curve, x, y), `colours` as in Bars."""

    x: str
    y: str
    rows: tuple[tuple[str, float, float], ...]
    colours: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """Few rows of text or numbers, a column each."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Step:
    """One question of a lesson. `tell` and `because` are Markdown.

    The question is asked `at` a moment, before it is settled; its answer is seen where it `shows`.
    `source` is who knows the answer.
    """

    title: str
    tell: str
    ask: str
    question: Number | Choice
    because: str
    at: Moment
    shows: Moment
    exhibit: Bars | Lines | Table | None = None
    source: str = "The events say"


@dataclass(frozen=True)
class Change:
    """What to change and run oneself: a command to copy, or two recorded runs to compare."""

    text: str
    command: str
    compare: tuple[str, str] | None = None


@dataclass(frozen=True)
class Lesson(Generic[F]):
    """`name` stands in addresses, `claim` in the list: what one knows afterwards, in a line."""

    name: str
    title: str
    claim: str
    traces: tuple[str, ...]
    read: Callable[[Runs], F]
    steps: Sequence[Callable[[F], Step]]
    claims: Mapping[str, Callable[[F], bool]]
    change: Change


class LessonError(ValueError):
    """A trace does not have what the lesson is about. One sentence."""


def first(found: Iterable[T], what: str) -> T:
    """The first of an iterable. Raises LessonError where there is none: `what` was looked for."""
    for thing in found:
        return thing
    raise LessonError(f"this trace has no {what}, which the lesson is about")
