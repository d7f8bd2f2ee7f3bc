"""POST /v1/completions: text in, `n` continuations out, whole."""

import asyncio
import time
import uuid
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from engine.core.config import SamplingParams
from engine.core.sequence import Request as EngineRequest
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineStopped
from engine.service.errors import error_response

router = APIRouter()


class CompletionBody(BaseModel):
    """What a client may ask. Anything else is refused by name, never ignored."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="The served model; may be left out.")
    prompt: str | list[Annotated[int, Field(ge=0)]] = Field(description="Text, or token ids.")
    n: int = Field(1, description="Completions of this prompt. They share its blocks.")
    max_tokens: int = Field(16, description="Most output tokens of each completion.")
    temperature: float = Field(1.0, description="0 is greedy.")
    top_p: float = 1.0
    top_k: int = Field(0, description="0 keeps all tokens.")
    seed: int | None = Field(None, description="The same seed gives the same text.")
    ignore_eos: bool = False
    stop_token_ids: list[int] = []
    stream: Literal[False] = Field(False, description="Streaming is not served yet.")
    request_id: str | None = Field(
        None, max_length=64, description="A name by which to find the request in the dashboard."
    )


@router.post("/v1/completions", summary="Complete a prompt")
async def completions(body: CompletionBody, http: Request) -> JSONResponse:
    """Queue the prompt and answer when all of its completions have ended."""
    context: ServiceContext = http.app.state.context
    if body.model not in (None, context.model_name):
        return error_response(
            404,
            f"model {body.model} is not served here; use {context.model_name}",
            "invalid_request_error",
            "model",
            "model_not_found",
        )
    # Tokenising a long text takes long: not in the event loop.
    prompt = await asyncio.to_thread(context.token_ids, body.prompt)
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    request = EngineRequest(
        body.request_id or f"cmpl-{uuid.uuid4().hex[:12]}",
        prompt,
        SamplingParams(
            n=body.n,
            max_tokens=body.max_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            seed=body.seed,
            ignore_eos=body.ignore_eos,
            stop_token_ids=tuple(body.stop_token_ids),
        ),
        time.monotonic(),
        on_finish=lambda _: loop.call_soon_threadsafe(done.set),
    )
    await asyncio.wrap_future(context.engine.add(request))
    await _until_done_or_gone(http, context, request, done)
    if any(s.finish_reason == "abort" for s in request.sequences):
        return error_response(503, "the request was aborted", "server_error")
    return JSONResponse(_answer(context, request))


async def _until_done_or_gone(
    http: Request, context: ServiceContext, request: EngineRequest, done: asyncio.Event
) -> None:
    """Wait for the request to end. A client that goes away takes its request with it."""
    finished = asyncio.ensure_future(done.wait())
    gone = asyncio.ensure_future(_disconnected(http))
    try:
        await asyncio.wait({finished, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not done.is_set():
            try:
                context.engine.abort(request.request_id)
                await finished
            except EngineStopped:
                finished.cancel()


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _answer(context: ServiceContext, request: EngineRequest) -> dict:
    output = sum(s.num_output for s in request.sequences)
    return {
        "id": request.request_id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": context.model_name,
        "choices": [
            {
                "index": sequence.index,
                "text": context.text(sequence.output),
                "finish_reason": str(sequence.finish_reason),
                "logprobs": None,
            }
            for sequence in request.sequences
        ],
        "usage": {
            "prompt_tokens": len(request.prompt),
            "completion_tokens": output,
            "total_tokens": len(request.prompt) + output,
        },
    }
