"""POST /v1/completions: text in, `n` continuations out."""

import asyncio
import uuid

from fastapi import APIRouter, Request, Response

from engine.service.answer_models import Completion, generation_responses
from engine.service.answering import respond
from engine.service.completion_answer import CompletionAnswer
from engine.service.completion_body import CompletionBody
from engine.service.context import ServiceContext
from engine.service.generation import Generation

router = APIRouter(tags=["generation"])


@router.post(
    "/v1/completions",
    summary="Complete a prompt",
    response_model=None,
    responses=generation_responses(Completion),
)
async def completions(body: CompletionBody, http: Request) -> Response:
    """Continue one prompt or several, each `n` times; whole, or as a stream.

    Choices are numbered through: those of the first prompt come first. Parameters that are not
    listed here are refused by name.
    """
    context: ServiceContext = http.app.state.context
    context.check_model(body.model)
    params = body.params(context.vocab_size)
    # Tokenising a long text takes long: not in the event loop.
    prompts = await asyncio.to_thread(lambda: [context.token_ids(p) for p in body.prompt])
    generation = Generation(
        context.engine,
        body.request_id or f"cmpl-{uuid.uuid4().hex[:12]}",
        prompts,
        params,
        streamed=body.stream,
        priority=body.priority,
        cache_salt=body.cache_salt,
    )
    texts = None
    if body.echo:
        texts = [p if isinstance(p, str) else context.text(p) for p in body.prompt]
    answer = CompletionAnswer(context, generation, texts)
    http.state.user = body.user
    return await respond(http, generation, answer, body)
