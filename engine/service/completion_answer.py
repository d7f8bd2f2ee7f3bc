"""A finished request as the body of a completion."""

import time
from typing import Any

from engine.core.drawn import Drawn, TokenLogprob
from engine.core.sequence import Request, Sequence
from engine.service.context import ServiceContext


def answer(context: ServiceContext, request: Request) -> dict[str, Any]:
    """The OpenAI shape, and `prompt_logprobs` where they were asked for."""
    if request.beams is not None:
        choices = [
            _choice(i, context.text(beam.output), str(beam.reason), None)
            for i, beam in enumerate(request.beams.best)
        ]
    else:
        choices = [
            _choice(s.index, s.detokenizer.text, str(s.finish_reason), _logprobs(context, s))
            for s in request.sequences
        ]
    body = {
        "id": request.request_id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": context.model_name,
        "choices": choices,
        "usage": {
            "prompt_tokens": len(request.prompt),
            "completion_tokens": request.num_output,
            "total_tokens": len(request.prompt) + request.num_output,
        },
    }
    if request.params.prompt_logprobs is not None:
        # The first token has none: nothing comes before it.
        body["prompt_logprobs"] = [None] + [
            {str(t.token): _told(context, t) for t in (told.chosen, *told.top)}
            for told in request.prompt_tokens
        ]
    return body


def _choice(index: int, text: str, reason: str, logprobs: dict | None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": reason, "logprobs": logprobs}


def _logprobs(context: ServiceContext, sequence: Sequence) -> dict[str, Any] | None:
    if sequence.request.params.logprobs is None:
        return None
    tokens = [context.token_text(drawn.token) for drawn in sequence.drawn]
    offsets, length = [], 0
    for token in tokens:
        offsets.append(length)
        length += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [drawn.chosen.logprob for drawn in sequence.drawn],
        "top_logprobs": [_top(context, drawn) for drawn in sequence.drawn],
        "text_offset": offsets,
    }


def _top(context: ServiceContext, drawn: Drawn) -> dict[str, float]:
    """Token text to logprob; of tokens with the same text the likelier one."""
    top: dict[str, float] = {}
    for told in drawn.top:
        top.setdefault(context.token_text(told.token), told.logprob)
    return top


def _told(context: ServiceContext, told: TokenLogprob) -> dict[str, Any]:
    return {
        "logprob": told.logprob,
        "rank": told.rank,
        "decoded_token": context.token_text(told.token),
    }
