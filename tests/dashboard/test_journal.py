"""The ticker's sentences: what they name, and that beams cannot drown the rest."""

from dashboard.block_history import block_changes
from dashboard.journal import QUIET_STEPS, BlockName, Journal, LineKind, RequestName
from engine.events import PoolState
from engine.events.records import (
    Allocate,
    AnyEvent,
    BlockSource,
    Computed,
    CopyOnWrite,
    Durations,
    Fork,
    QueueLengths,
    Release,
    ReleaseWhy,
    RequestAdded,
    ScheduledKind,
    SequenceFinished,
    SequenceScheduled,
    Share,
    ShareWhy,
    Step,
    TokenCounts,
)
from tests.dashboard.folding import remembered
from tests.dashboard.simulated import SimulatedEngine, empty_keyframe, header


class Book:
    """A journal with the state that its steps are applied to."""

    def __init__(self) -> None:
        self.state = PoolState(header(8, 4))
        self.state.apply(empty_keyframe())
        self.journal = Journal()
        self.journal.load(self.state)

    def step(self, *events: AnyEvent) -> None:
        step = Step(
            seq=self.state.seq + 1,
            step=self.state.seq + 1,
            time=100.0,
            durations=Durations(0, 0, 0),
            tokens=TokenCounts(),
            queues=QueueLengths(0, 0, 0),
            events=list(events),
        )
        self.state.apply(step)
        self.journal.note(self.state, step)


def beams(book: Book, turns: int) -> None:
    """Two beams of request "b": at each turn one is forked anew, writes to a copy, and ends."""
    book.step(RequestAdded("b", 0, 3, 2, 99, 100.0), SequenceScheduled(0, ScheduledKind.FIRST))
    book.step(Allocate(0, 0, 0, BlockSource.FREE), Computed(0, 3))
    for child in range(1, turns + 1):
        book.step(
            *(Fork(0, child), Share(0, child, 0, ShareWhy.FORK)),
            CopyOnWrite(0, 1, child, 0, BlockSource.FREE),
            *(Release(1, child, ReleaseWhy.PRUNED, 0), SequenceFinished(child, "pruned", 1)),
        )


def test_beams_are_told_now_and_then_with_what_was_left_out() -> None:
    book = Book()
    beams(book, 2 * QUIET_STEPS + 5)
    for kind in (LineKind.FORKED, LineKind.COPIED):
        lines = [line for line in book.journal.lines(1000) if line.kind is kind]
        assert [line.step for line in reversed(lines)] == [2, 2 + QUIET_STEPS, 2 + 2 * QUIET_STEPS]
        assert f"(and {QUIET_STEPS - 1} more since step 2)" in lines[-2].text
        assert "more since" not in lines[-1].text


def test_the_parts_of_a_sentence_name_what_can_be_followed() -> None:
    book = Book()
    beams(book, 1)
    copied = next(line for line in book.journal.lines(10) if line.kind is LineKind.COPIED)
    assert copied.parts[0] == RequestName("b")
    assert [part for part in copied.parts if isinstance(part, BlockName)] == [
        BlockName(0),
        BlockName(1),
    ]
    assert copied.text == "request b wrote to shared block 0: copied to block 1"


def test_a_line_is_not_known_before_its_record() -> None:
    book = Book()
    beams(book, 3)
    first = book.journal.lines(1000)[-1]
    assert book.journal.lines(1000, first.seq - 1) == []
    assert first in book.journal.lines(1000, first.seq)


def test_the_changes_of_a_block_are_every_event_that_names_it() -> None:
    steps = 60
    engine = SimulatedEngine(24, seed=3, max_running=8)
    past = remembered(SimulatedEngine(24, seed=3, max_running=8), steps)
    expected: dict[int, list[int]] = {block: [] for block in range(24)}
    for step in (engine.step() for _ in range(steps)):
        for event in step.events:
            names = {getattr(event, name, None) for name in ("block", "source", "target")}
            for block in names & expected.keys():
                expected[block].append(step.seq)
    for block, seqs in expected.items():
        changes = block_changes(past, block, steps - 1, 1000)
        assert [change.seq for change in reversed(changes)] == seqs
        assert block_changes(past, block, steps - 1, 3) == changes[:3]
        middle = seqs[len(seqs) // 2]
        assert all(change.seq <= middle for change in block_changes(past, block, middle, 1000))
