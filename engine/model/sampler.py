"""The sampler: one token a sequence from its logits, for the whole batch at once.

    logits -> bias, min_tokens, penalties -> best token                                (greedy)
                                          -> temperature, min_p, top_k, top_p -> draw  (else)

A sequence's draw depends on its logits, its seed and its position alone. So it is the same whatever
else runs in the step, and a preempted sequence needs no random state to be kept. Each part touches
only the rows that ask for it. Logprobs are those of the model, from the logits as they came.
"""

from collections import Counter

import torch

from engine.core.config import SamplingParams
from engine.core.drawn import Drawn
from engine.core.randomness import uniform
from engine.core.sequence import Sequence
from engine.model.logprobs import at_least_float32, token_logprobs

# So many of the best tokens are sorted before a whole vocabulary is.
SORTED_FIRST = 1024

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
    # Relative to the best token, whose weight is 1: however low the temperature, nothing overflows.
    logits -= logits.amax(dim=-1, keepdim=True)
    logits /= column([p.temperature for p in params])
    weights = logits.exp_()
    if any(p.min_p for p in params):
        weights.masked_fill_(weights < column([p.min_p for p in params]), 0)
    picky = [row for row, p in enumerate(params) if p.top_k or p.top_p < 1]
    if picky:
        few = weights[picky]
        top_k = column([params[row].top_k or torch.inf for row in picky])
        top_p = column([params[row].top_p if params[row].top_p < 1 else torch.inf for row in picky])
        weights[picky] = few.masked_fill(few < _least_kept(few, top_k, top_p), 0)
    cumulated = weights.cumsum(dim=-1)
    # A number below 1, of 53 bits, times the sum is below the sum as computed too: the draw falls on
    # a token that has weight.
    draws = column([uniform(s.seed, len(s.tokens)) for s in sequences]) * cumulated[:, -1:]
    picked = torch.searchsorted(cumulated, draws, right=True)
    # A row with nothing left (every token forbidden) has no sum; its token must still be one.
    return picked[:, 0].clamp(max=logits.shape[-1] - 1).tolist()


def _least_kept(weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """The weight of the last token that is kept: of the `top_k` best the fewest that reach `top_p`.

    weights: [rows, vocabulary]; top_k, top_p and what is returned: [rows, 1], infinite for no limit.
    A weight, not tokens: equals stay or go together, and no order among them matters. Sorting whole
    rows is slow, and rarely needed: most often the first thousand tokens decide.
    """
    total = weights.cumsum(dim=-1)[:, -1:]
    count = min(SORTED_FIRST, weights.shape[-1])
    best = weights.topk(count, dim=-1).values
    least = _least_of_sorted(best, total, top_k, top_p)
    decided = (top_k <= count) | (top_k.isinf() & (best.cumsum(dim=-1)[:, -1:] >= top_p * total))
    rest = (~decided[:, 0]).nonzero()[:, 0]
    if len(rest):
        best = weights[rest].sort(dim=-1, descending=True).values
        least[rest] = _least_of_sorted(best, total[rest], top_k[rest], top_p[rest])
    return least


def _least_of_sorted(
    best: torch.Tensor, total: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    """`best`: the rows' best weights, sorted. `total`: the sum of the whole row, [rows, 1]."""
    beyond = torch.arange(best.shape[-1], device=best.device) >= top_k
    reached = best.masked_fill(beyond, 0).cumsum(dim=-1)
    # top_p is a share of what top_k has left.
    total = torch.where(top_k.isinf(), total, reached[:, -1:])
    # A token stays while those before it have less than top_p: the first always does.
    beyond |= reached - best >= top_p * total
    return best.masked_fill(beyond, torch.inf).amin(dim=-1, keepdim=True)


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
