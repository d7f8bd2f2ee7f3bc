"""What can never run here is refused when it arrives, with the value and the remedy."""

from engine.core.config import EngineConfig, Policy, RequestError
from engine.core.sequence import Request
from engine.events.records import RejectWhy


class QueueFullError(RequestError):
    """The engine has as many waiting requests as it takes; a later try may succeed."""


def refusal(
    config: EngineConfig, request: Request, queued: int
) -> tuple[RejectWhy | None, RequestError] | None:
    """Why a request is refused; None where it can run. `queued` requests have not started yet.

    Without a RejectWhy the request is malformed, and no event tells of it.
    """
    params, prompt = request.params, len(request.prompt)
    # The last token that is sampled never gets KV.
    blocks = -(-(prompt + params.max_tokens - 1) // config.block_size)
    # Beams move on together; after a preemption each may need a whole table of its own.
    together = params.n if params.use_beam_search else 1
    if prompt == 0:
        return None, RequestError("prompt is empty; send at least one token", "prompt")
    if request.priority and config.policy is not Policy.PRIORITY:
        return None, RequestError(
            f"priority is {request.priority}, but this engine serves first come, first served: "
            "leave it out, or start the engine with --scheduling-policy priority",
            "priority",
        )
    if prompt + params.max_tokens > config.max_model_len:
        return RejectWhy.PROMPT_TOO_LONG, RequestError(
            f"prompt of {prompt} tokens plus max_tokens {params.max_tokens} is more than "
            f"max_model_len {config.max_model_len}: shorten the prompt or lower max_tokens",
            "prompt" if prompt >= config.max_model_len else "max_tokens",
        )
    if blocks * together > config.num_blocks:
        beams = f" for each of {together} beams" if together > 1 else ""
        return RejectWhy.NEVER_FITS_POOL, RequestError(
            f"prompt of {prompt} tokens plus max_tokens {params.max_tokens} needs {blocks} blocks "
            f"of {config.block_size}{beams}, the whole pool has {config.num_blocks}: shorten the "
            "prompt, lower max_tokens or start the engine with a larger pool",
            "prompt",
        )
    most = together * (prompt + params.max_tokens - 1)
    if not config.enable_chunked_prefill and most > config.max_num_batched_tokens:
        return RejectWhy.NEVER_FITS_POOL, RequestError(
            f"{together} beams of {prompt + params.max_tokens - 1} tokens may have to be computed in "
            f"one step, max_num_batched_tokens is {config.max_num_batched_tokens}: ask for fewer "
            "beams or tokens, or start the engine with chunked prefill",
            "n",
        )
    if params.n > config.max_num_seqs:
        return RejectWhy.TOO_MANY_SEQUENCES, RequestError(
            f"n is {params.n}, more than max_num_seqs {config.max_num_seqs}: ask for fewer", "n"
        )
    if config.max_num_queued_reqs and queued >= config.max_num_queued_reqs:
        return RejectWhy.QUEUE_FULL, QueueFullError(
            f"{queued} requests are waiting, as many as max_num_queued_reqs allows: try again later",
            "request",
        )
    return None
