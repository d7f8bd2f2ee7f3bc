"""Log probabilities of tokens under the model: the chosen one's, and the best ones'."""

import torch

from engine.core.drawn import TokenLogprob

# Rows of the vocabulary's width that are in work at once: what bounds a long prompt's memory.
ROWS_AT_ONCE = 32


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: half precision would tie tokens that differ."""
    return torch.promote_types(dtype, torch.float32)


def token_logprobs(
    logits: torch.Tensor, tokens: list[int], tops: list[int]
) -> list[tuple[TokenLogprob, tuple[TokenLogprob, ...]]]:
    """How likely each row's token was, and its row's most likely tokens, best first.

    logits: [rows, vocabulary], any float dtype, as the model gave them. tokens: one a row. tops: how
    many of the best to tell, for each row; 0 tells none. Logprobs are natural and float32, ranks
    start at 1, equals share a rank and come in the order of their ids.
    """
    told = []
    for start in range(0, len(tokens), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        told += _token_logprobs(logits[rows], tokens[rows], tops[rows])
    return told


def _token_logprobs(
    logits: torch.Tensor, tokens: list[int], tops: list[int]
) -> list[tuple[TokenLogprob, tuple[TokenLogprob, ...]]]:
    scores = logits.to(at_least_float32(logits.dtype)).log_softmax(dim=-1).float()
    chosen = scores.gather(-1, torch.tensor(tokens, device=logits.device)[:, None])
    ranks = (scores > chosen).sum(dim=-1) + 1
    best = _best(scores, min(max(tops), scores.shape[-1]))
    best_scores = scores.gather(-1, best)
    return [
        (TokenLogprob(token, score, rank), _ranked(ids[:top], values[:top]))
        for token, score, rank, ids, values, top in zip(
            tokens,
            chosen[:, 0].tolist(),
            ranks.tolist(),
            best.tolist(),
            best_scores.tolist(),
            tops,
            strict=True,
        )
    ]


def _best(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Ids of the `count` best of each row of float32 logprobs; of equals, the lower id first.

    topk leaves open which of equals it takes, and may decide by `count` or the batch. So it gets
    keys that differ: the score's bits, as an integer of the same order, then the id.
    """
    bits = scores.view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    ids = torch.arange(scores.shape[-1], device=scores.device)
    return ((ordered.long() << 32) - ids).topk(count, dim=-1).indices


def _ranked(ids: list[int], values: list[float]) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(token, value, values.index(value) + 1)
        for token, value in zip(ids, values, strict=True)
    )
