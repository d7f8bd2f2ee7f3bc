"""The sampler: one token a sequence from its logits, for the whole batch at once.

    logits -> bias, min_tokens, penalties -> best token                                (greedy)
                                          -> temperature, min_p, top_k, top_p -> draw  (else)

A sequence's draw depends on its logits, its seed and its position alone. So it is the same whatever
else runs in the step, and a preempted sequence needs no random state to be kept. Each part touches
only the rows that ask for it. Logprobs are those of the model, from the logits as they came.
"""

import math
from collections import Counter

import torch

from engine.core.config import SamplingParams
from engine.core.drawn import Drawn
from engine.core.randomness import uniform
from engine.core.sequence import Sequence
from engine.model.logprobs import at_least_float32, token_logprobs

Ids = list[int] | tuple[int, ...]


def sample(
    logits: torch.Tensor, sequences: list[Sequence], eos_token_ids: frozenset[int]
) -> list[Drawn]:
    """logits: [sequences, vocabulary], any float dtype, left as they are.

    Returns what each sequence drew. A beam draws nothing: it gets its 2 n best candidates.
    """
    if not sequences:
        return []
    tokens = logits.argmax(dim=-1).tolist()
    rows = [row for row, s in enumerate(sequences) if _is_more_than_argmax(s)]
    if rows:
        chosen = _choose(logits[rows], [sequences[row] for row in rows], eos_token_ids)
        for row, token in zip(rows, chosen, strict=True):
            tokens[row] = token
    return _with_logprobs(logits, sequences, tokens)


def _is_more_than_argmax(sequence: Sequence) -> bool:
    params = sequence.request.params
    return not params.use_beam_search and (
        params.temperature > 0
        or bool(params.logit_bias)
        or sequence.num_output < params.min_tokens
        or _has_penalty(params)
    )


def _has_penalty(params: SamplingParams) -> bool:
    return bool(
        params.repetition_penalty != 1 or params.frequency_penalty or params.presence_penalty
    )


def _choose(
    logits: torch.Tensor, sequences: list[Sequence], eos_token_ids: frozenset[int]
) -> list[int]:
    """A token for each row. logits: [rows, vocabulary], ours to change."""
    logits = logits.to(at_least_float32(logits.dtype))
    _add_bias(logits, sequences)
    _forbid_early_stops(logits, sequences, eos_token_ids)
    _penalise(logits, sequences)
    tokens = logits.argmax(dim=-1).tolist()
    rows = [row for row, s in enumerate(sequences) if s.request.params.temperature > 0]
    if rows:
        drawn = _draw(logits[rows], [sequences[row] for row in rows])
        for row, token in zip(rows, drawn, strict=True):
            tokens[row] = token
    return tokens


# -- changes to single logits, in place -------------------------------------------------------


def _add_bias(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    vocabulary = logits.shape[-1]
    # A token outside the vocabulary can't be drawn anyway, here and in stop_token_ids.
    entries = [
        (row, token, bias)
        for row, sequence in enumerate(sequences)
        for token, bias in sequence.request.params.logit_bias.items()
        if 0 <= token < vocabulary
    ]
    if entries:
        rows, tokens, biases = zip(*entries, strict=True)
        at = _index(logits, rows, tokens)
        logits[at] += torch.tensor(biases, dtype=logits.dtype, device=logits.device)


def _forbid_early_stops(
    logits: torch.Tensor, sequences: list[Sequence], eos_token_ids: frozenset[int]
) -> None:
    """What would end a sequence is out of reach until it has min_tokens.

    An end-of-sequence token that is ignored ends nothing, and stays.
    """
    vocabulary = logits.shape[-1]
    rows: list[int] = []
    tokens: list[int] = []
    for row, sequence in enumerate(sequences):
        params = sequence.request.params
        if sequence.num_output < params.min_tokens:
            ends = set(params.stop_token_ids) | (set() if params.ignore_eos else eos_token_ids)
            ends = {token for token in ends if 0 <= token < vocabulary}
            rows += [row] * len(ends)
            tokens += ends
    if rows:
        logits[_index(logits, rows, tokens)] = -torch.inf


def _penalise(logits: torch.Tensor, sequences: list[Sequence]) -> None:
    """Repetition: a seen token's logit is divided by the penalty, multiplied where negative
    (CTRL, arXiv:1909.05858, section 4.1, as the field has it). Frequency and presence: subtracted.
    """
    rows: list[int] = []
    tokens: list[int] = []
    counts: list[int] = []
    for row, sequence in enumerate(sequences):
        params = sequence.request.params
        if not _has_penalty(params):
            continue
        output = Counter(sequence.output)
        seen = set(sequence.tokens) if params.repetition_penalty != 1 else output.keys()
        rows += [row] * len(seen)
        tokens += seen
        counts += [output[token] for token in seen]
    if not rows:
        return

    def of_each(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=logits.dtype, device=logits.device)

    at = _index(logits, rows, tokens)
    params = [s.request.params for s in sequences]
    repetition = of_each([p.repetition_penalty for p in params])[at[0]]
    frequency = of_each([p.frequency_penalty for p in params])[at[0]]
    presence = of_each([p.presence_penalty for p in params])[at[0]]
    times = of_each(counts)
    values = logits[at]
    values = torch.where(values > 0, values / repetition, values * repetition)
    logits[at] = values - frequency * times - presence * (times > 0)


def _index(logits: torch.Tensor, rows: Ids, tokens: Ids) -> tuple[torch.Tensor, torch.Tensor]:
    """Where in `logits`: each (row, token) at most once, so that no write meets another."""
    return (
        torch.tensor(rows, dtype=torch.int64, device=logits.device),
        torch.tensor(tokens, dtype=torch.int64, device=logits.device),
    )


# -- the draw ---------------------------------------------------------------------------------


def _draw(logits: torch.Tensor, sequences: list[Sequence]) -> list[int]:
    """Invert the cumulated distribution at each sequence's number, in float64: [rows, vocabulary]."""
    params = [s.request.params for s in sequences]

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    logits = logits.double()
    # The best at 0: however low the temperature, nothing overflows, and min_p is one comparison.
    logits -= logits.amax(dim=-1, keepdim=True)
    logits /= column([p.temperature for p in params])
    if any(p.min_p for p in params):
        least = column([math.log(p.min_p) if p.min_p else -math.inf for p in params])
        logits.masked_fill_(logits < least, -torch.inf)
    picky = [row for row, p in enumerate(params) if p.top_k or p.top_p < 1]
    if picky:
        logits[picky] = _keep_best(
            logits[picky],
            column([params[row].top_k or logits.shape[-1] for row in picky]),
            column([params[row].top_p if params[row].top_p < 1 else torch.inf for row in picky]),
        )
    cumulated = logits.softmax(dim=-1).cumsum(dim=-1)
    # Below the sum as computed, so that a draw near 1 still falls on a kept token.
    total = cumulated[:, -1:]
    draws = column([uniform(s.seed, len(s.tokens)) for s in sequences]) * total
    draws = draws.minimum(total.nextafter(torch.zeros_like(total)))
    picked = torch.searchsorted(cumulated, draws, right=True)
    # A row with nothing left (every token forbidden) has no sum; its token must still be one.
    return picked[:, 0].clamp(max=logits.shape[-1] - 1).tolist()


def _keep_best(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Logits with -inf for all but the `top_k` best, and of these the fewest that reach `top_p`.

    Of equals the lower token goes first. In the order of the vocabulary again, so that all rows are
    drawn from alike.
    """
    best, order = logits.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    best = best.masked_fill(rank >= top_k, -torch.inf)
    probabilities = best.softmax(dim=-1)
    # A token stays while those before it have less than top_p: the first always does.
    before = probabilities.cumsum(dim=-1) - probabilities
    best = best.masked_fill(before >= top_p, -torch.inf)
    return torch.empty_like(logits).scatter_(-1, order, best)


# -- what is told besides the token -----------------------------------------------------------


def _with_logprobs(
    logits: torch.Tensor, sequences: list[Sequence], tokens: list[int]
) -> list[Drawn]:
    drawn = [Drawn(token) for token in tokens]
    tops = {}
    for row, sequence in enumerate(sequences):
        params = sequence.request.params
        if params.use_beam_search:
            tops[row] = 2 * params.n
        elif params.logprobs is not None:
            tops[row] = params.logprobs
    if tops:
        rows = list(tops)
        told = token_logprobs(logits[rows], [tokens[row] for row in rows], list(tops.values()))
        for row, (chosen, top) in zip(rows, told, strict=True):
            if sequences[row].request.params.use_beam_search:
                drawn[row] = Drawn(top[0].token, top=top)
            else:
                drawn[row] = Drawn(tokens[row], chosen, top)
    return drawn
