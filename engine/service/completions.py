"""POST /v1/completions: text in, `n` continuations out, whole."""

import asyncio
import time
import uuid

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from engine.core.sequence import Request as EngineRequest
from engine.service.completion_answer import answer
from engine.service.completion_body import CompletionBody
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineStopped
from engine.service.errors import error_response

router = APIRouter()


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
        body.sampling_params(len(context.tokenizer)),
        time.monotonic(),
        on_finish=lambda _: loop.call_soon_threadsafe(done.set),
        priority=body.priority,
        cache_salt=body.cache_salt,
    )
    await asyncio.wrap_future(context.engine.add(request))
    await _until_done_or_gone(http, context, request, done)
    if request.finish_reason == "abort":
        return error_response(503, "the request was aborted", "server_error")
    return JSONResponse(answer(context, request))


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
