"""The sampler: one token a sequence from its logits, for the whole batch at once.

A sequence's draw depends on its logits, its seed and its position alone. So it is the same whatever
else runs in the step, and a preempted sequence needs no random state to be kept.
"""

import torch

from engine.core.randomness import uniform
from engine.core.sequence import Sequence


def sample(logits: torch.Tensor, sequences: list[Sequence]) -> list[int]:
    """logits: [sequences, vocabulary], any float dtype. Returns a token id for each sequence."""
    tokens = logits.argmax(dim=-1).tolist()
    rows = [row for row, s in enumerate(sequences) if s.request.params.temperature > 0]
    if rows:
        drawn = _draw(logits[rows], [sequences[row] for row in rows])
        for row, token in zip(rows, drawn, strict=True):
            tokens[row] = token
    return tokens


def _draw(logits: torch.Tensor, sequences: list[Sequence]) -> list[int]:
    params = [s.request.params for s in sequences]

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    logits = logits.double() / column([p.temperature for p in params])
    if any(p.top_k or p.top_p < 1 for p in params):
        logits = _keep_best(
            logits,
            column([p.top_k or logits.shape[-1] for p in params]),
            column([p.top_p if p.top_p < 1 else torch.inf for p in params]),
        )
    cumulated = logits.softmax(dim=-1).cumsum(dim=-1)
    # Below the sum as computed, so that a draw near 1 still falls on a kept token.
    total = cumulated[:, -1:]
    draws = column([uniform(s.seed, len(s.tokens)) for s in sequences]) * total
    draws = draws.minimum(total.nextafter(torch.zeros_like(total)))
    picked = torch.searchsorted(cumulated, draws, right=True)
    return picked[:, 0].tolist()


def _keep_best(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Logits with -inf for all but the `top_k` best, and of these the fewest that reach `top_p`.

    In the order of the vocabulary again, so that a row that keeps all draws as it does alone.
    """
    best, order = logits.sort(dim=-1, descending=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    best = best.masked_fill(rank >= top_k, -torch.inf)
    probabilities = best.softmax(dim=-1)
    # A token stays while those before it have less than top_p: the first always does.
    before = probabilities.cumsum(dim=-1) - probabilities
    best = best.masked_fill(before >= top_p, -torch.inf)
    return torch.empty_like(logits).scatter_(-1, order, best)
