"""A simulated run: the engine of engine/llm.py, unchanged, on a clock that jumps.

    arrivals ──► engine.add ──► engine.step ──► record ──► whoever asked for it
                      ▲              │
                      └── clock ◄────┘   a step takes what its cost says; idle time takes nothing

A request enters before the first step at or after its arrival. Nothing depends on the machine: the
same requests, configuration and cost give the same records.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from engine.core.config import EngineConfig, Policy, RequestError
from engine.core.drawn import Drawn, StepOutput
from engine.core.plan import Plan
from engine.core.runner import ModelFreeRunner, StepCost
from engine.core.sequence import Request
from engine.core.sequence import Sequence as EngineSequence
from engine.events.records import Step
from engine.llm import LLMEngine
from engine.simulate.asked import STOP, Asked

BYTES = 256
SALT = bytes(16)
STEPS_A_TELL = 256
MALFORMED = "malformed"


class VirtualClock:
    """Seconds that pass only when they are told to."""

    def __init__(self, start: float) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


class DrawnTokens(dict[int, Drawn]):
    """What was drawn, by token: made once for STOP and for bytes, which most simulated tokens are."""

    def __init__(self) -> None:
        super().__init__((token, Drawn(token)) for token in (STOP, *range(BYTES)))

    def __missing__(self, token: int) -> Drawn:
        return Drawn(token)


class ScriptedRunner(ModelFreeRunner):
    """Draws, for each completion, the tokens that it is known to say. Beams are made up."""

    def __init__(self, cost: StepCost, clock: VirtualClock) -> None:
        super().__init__(BYTES, cost, clock.pass_by)
        self._tokens = DrawnTokens()
        self._scripts: dict[str, list[Iterator[Drawn]]] = {}
        self._says: dict[EngineSequence, Iterator[Drawn]] = {}

    def expect(self, request: Asked) -> None:
        """Take note of what a request's completions will say, before it first runs."""
        self._scripts[request.request_id] = [
            map(self._tokens.__getitem__, _ended(output, request.max_tokens))
            for output in request.outputs
        ]

    def forget(self, request: Request) -> None:
        """The request has ended. Without its sequences it is no ring, and needs no garbage collector."""
        del self._scripts[request.request_id]
        for sequence in request.sequences:
            self._says.pop(sequence, None)
        request.sequences = []

    def sample(self, output: None, plan: Plan) -> StepOutput:
        says = self._says
        return StepOutput(
            [next(says.get(sequence) or self._begin(sequence)) for sequence in plan.samples]
        )

    def _begin(self, sequence: EngineSequence) -> Iterator[Drawn]:
        """What a sequence that draws its first token will say."""
        request = sequence.request
        if request.beams is None:
            script = self._scripts[request.request_id][sequence.index]
        else:
            script = iter(partial(self._draw, sequence), None)
        self._says[sequence] = script
        return script


class Simulation:
    """An engine on a virtual clock that starts at `start`, and the requests that it refused.

    `on_record` is called with each record right after the step, `engine` in the state after it.
    """

    def __init__(
        self,
        config: EngineConfig,
        cost: StepCost,
        start: float = 0.0,
        on_record: Callable[[Step], None] | None = None,
    ) -> None:
        self.clock = VirtualClock(start)
        self.runner = ScriptedRunner(cost, self.clock)
        self.engine = LLMEngine(
            config, self.runner, clock=self.clock, hash_salt=SALT, on_record=on_record
        )
        self._by_priority = config.policy is Policy.PRIORITY
        self.refused: Counter[str] = Counter()
        """Requests that the engine did not take, by why: a RejectWhy, or MALFORMED."""
        self.first_refusal: str | None = None
        """Of the first of them, the sentence that its client would have been told."""

    def run(
        self, requests: Iterable[Asked], progress: Callable[[float], None] = lambda now: None
    ) -> None:
        """Serve the requests, which come in order of arrival, to the end of the last one.

        `progress` is told the simulated time now and then.
        """
        engine, clock = self.engine, self.clock
        coming = iter(requests)
        following = next(coming, None)
        while following is not None or engine.has_work:
            while following is not None and following.arrival <= clock.now:
                self._add(following)
                following = next(coming, None)
            if engine.has_work:
                engine.step()
                if engine.steps % STEPS_A_TELL == 0:
                    progress(clock.now)
            elif following is not None:
                # What was refused is told at its time, not when the next request comes.
                engine.tell()
                clock.now = max(clock.now, following.arrival)
        engine.tell()

    def _add(self, asked: Asked) -> None:
        told = len(self.engine.scheduler.events)
        try:
            request = Request(
                asked.request_id,
                list(asked.prompt),
                asked.params(),
                asked.arrival,
                on_finish=self.runner.forget,
                priority=asked.priority if self._by_priority else 0,
            )
            self.engine.add(request)
        except RequestError as error:
            self.first_refusal = self.first_refusal or str(error)
            rejected = self.engine.scheduler.events[told:]
            self.refused[str(rejected[0].why) if rejected else MALFORMED] += 1
        else:
            self.runner.expect(asked)


def _ended(output: Sequence[int], max_tokens: int) -> Sequence[int]:
    """The output with STOP as its last token, where its length alone would not end it."""
    return output if len(output) == max_tokens else [*output[:-1], STOP]
