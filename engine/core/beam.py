"""Beam search over token scores: which beams go on, which end, and when to stop. Knows no blocks.

Of all beams' best continuations the 2 n best are looked at, best first. One that ends (an end token,
or max_tokens) is kept as a hypothesis if it is among the first n; the n best of the others go on.
The search stops when n hypotheses are kept and no running beam, at its present length, scores better
than the worst of them. These are the rules of transformers' beam search with early_stopping=False,
so that both give the same text.
"""

import msgspec

from engine.core.config import SamplingParams
from engine.core.drawn import TokenLogprob
from engine.events.records import FinishReason


class Hypothesis(msgspec.Struct, frozen=True):
    """A finished beam: its output tokens, and its cumulated logprob / length ** length_penalty."""

    score: float
    output: list[int]
    reason: FinishReason


class Survivor(msgspec.Struct, frozen=True):
    """Beam number `beam` of those given goes on with `token`; `logprob` is cumulated over it."""

    beam: int
    token: int
    logprob: float


class Beam(msgspec.Struct, frozen=True):
    """A running beam: its output so far, its cumulated logprob, and its best next tokens."""

    output: list[int]
    logprob: float
    candidates: tuple[TokenLogprob, ...]


class BeamSearch:
    """The search of one request. `best` has the hypotheses kept so far, best first."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.best: list[Hypothesis] = []
        self.logprobs: dict[int, float] = {}
        """Cumulated logprob by sequence number, of the running beams."""

    def advance(self, beams: list[Beam], end_tokens: frozenset[int]) -> list[Survivor]:
        """Move on by one token. Returns the beams that go on, best first; none when it is over."""
        width = self.params.n
        options = [
            (beam.logprob + option.logprob, number, option.token)
            for number, beam in enumerate(beams)
            for option in beam.candidates
        ]
        options.sort(key=lambda option: (-option[0], option[1], option[2]))
        survivors: list[Survivor] = []
        length = len(beams[0].output) + 1
        for rank, (logprob, number, token) in enumerate(options[: 2 * width]):
            reason = self._end(token, length, end_tokens)
            if reason is None:
                if len(survivors) < width:
                    survivors.append(Survivor(number, token, logprob))
            elif rank < width:
                self._keep([*beams[number].output, token], logprob, reason)
        if survivors and len(self.best) == width:
            possible = self._score(survivors[0].logprob, length)
            if possible <= self.best[-1].score:
                return []
        return survivors

    def _end(self, token: int, length: int, end_tokens: frozenset[int]) -> FinishReason | None:
        if token in end_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if length >= self.params.max_tokens else None

    def _score(self, logprob: float, length: int) -> float:
        return logprob / length**self.params.length_penalty

    def _keep(self, output: list[int], logprob: float, reason: FinishReason) -> None:
        self.best.append(Hypothesis(self._score(logprob, len(output)), output, reason))
        self.best.sort(key=lambda hypothesis: -hypothesis.score)
        del self.best[self.params.n :]
