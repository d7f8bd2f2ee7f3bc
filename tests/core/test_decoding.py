"""A sequence that decodes alone is asked little. That it is changes nothing of what it does and tells."""

import msgspec
import pytest

from engine.core.config import SamplingParams
from engine.core.runner import ModelFreeRunner
from engine.core.sequence import Request, Sequence
from engine.events.records import AnyEvent, Fork, Preempt, RequestAdded, Sampled
from engine.llm import LLMEngine
from tests.core.driver import Driver, config, of_kind

REQUESTS = [
    (list(range(1, 10)), {"max_tokens": 12}),
    (list(range(1, 10)), {"max_tokens": 9, "n": 3}),
    (list(range(1, 14)), {"max_tokens": 11, "ignore_eos": False}),
    (list(range(1, 7)), {"max_tokens": 6, "n": 2, "use_beam_search": True}),
    ([5], {"max_tokens": 12, "n": 2, "ignore_eos": False}),
]


class CountingText:
    """Stands for a detokenizer: counts tokens, and stops at the fifth."""

    text = ""

    def __init__(self) -> None:
        self.pushed: list[int] = []
        self.finished = False

    def push(self, token: int) -> bool:
        self.pushed.append(token)
        return len(self.pushed) == 5

    def finish(self) -> None:
        self.finished = True


def run(token_text=None, requests=REQUESTS, new_detokenizer=None, on_token=None):
    """Serve the requests on a pool that is too small for them; returns them and all events."""
    events: list[AnyEvent] = []
    engine = LLMEngine(
        config(enable_prefix_caching=True),
        ModelFreeRunner(vocab_size=12),
        eos_token_ids=frozenset({0}),
        token_text=token_text,
        new_detokenizer=new_detokenizer,
        on_record=lambda record: events.extend(record.events),
        clock=lambda: 0.0,
        hash_salt=bytes(16),
    )
    asked = []
    for number, (prompt, params) in enumerate(requests):
        params = SamplingParams(**{"ignore_eos": True, "seed": number, **params})
        asked.append(Request(f"r{number}", list(prompt), params, 0.0, on_token=on_token))
        engine.add(asked[-1])
    while engine.has_work:
        engine.step()
    return asked, events


def without_text(events: list[AnyEvent]) -> list[AnyEvent]:
    return [
        msgspec.structs.replace(event, prompt_text=None) if type(event) is RequestAdded else event
        for event in events
        if type(event) is not Sampled
    ]


def test_whether_somebody_listens_changes_nothing_but_what_is_told():
    unheard, events = run()
    heard, told = run(token_text=str)
    assert of_kind(events, Preempt)
    assert of_kind(events, Fork)
    assert without_text(told) == events
    assert [[s.tokens for s in request.sequences] for request in heard] == [
        [s.tokens for s in request.sequences] for request in unheard
    ]
    reasons = [[s.finish_reason for s in request.sequences] for request in unheard]
    assert {"stop", "length"} <= {reason for one in reasons for reason in one}


def test_each_token_is_told_to_its_client():
    heard: dict[Sequence, int] = {}

    def on_token(sequence: Sequence) -> None:
        heard[sequence] = heard.get(sequence, 0) + 1
        assert sequence.num_output == heard[sequence]

    requests, _ = run(requests=REQUESTS[:3], on_token=on_token)
    assert heard == {s: s.num_output for request in requests for s in request.sequences}


def test_each_token_becomes_text_and_a_stop_string_ends_it():
    requests, _ = run(requests=REQUESTS[:2], new_detokenizer=lambda request: CountingText())
    sequences = [sequence for request in requests for sequence in request.sequences]
    assert [s.detokenizer.pushed for s in sequences] == [s.output for s in sequences]
    assert {len(s.output) for s in sequences} == {5}
    assert all(s.detokenizer.finished for s in sequences)


def test_logprobs_are_kept_of_each_token():
    requests, _ = run(requests=[([1, 2, 3], {"max_tokens": 9, "logprobs": 0})])
    [sequence] = requests[0].sequences
    assert [drawn.token for drawn in sequence.drawn] == sequence.output


def test_a_sequence_decodes_from_its_first_token_until_it_is_preempted():
    driver = Driver(config(num_blocks=4, max_model_len=16))
    driver.add(8, max_tokens=8)
    driver.add(4, max_tokens=8)
    first, second = driver.scheduler.waiting
    assert not first.decoding
    driver.step()
    assert first.decoding
    assert second.decoding
    assert (first.own_slots, second.own_slots) == (8, 4)
    driver.step()
    assert (first.own_slots, second.own_slots) == (12, 0)
    assert second.status == "preempted"
    assert not second.decoding
    driver.run()


@pytest.mark.parametrize("prompt", [6, 8])
def test_a_fork_leaves_nobody_with_slots_of_its_own(prompt):
    driver = Driver(config())
    driver.add(prompt, n=2, max_tokens=4)
    driver.step()
    assert [sequence.own_slots for sequence in driver.scheduler.running] == [0, 0]
    driver.step()
    table_slots = [4 * len(sequence.table) for sequence in driver.scheduler.running]
    assert [sequence.own_slots for sequence in driver.scheduler.running] == table_slots
