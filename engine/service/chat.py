"""POST /v1/chat/completions: a conversation in, its next turn out."""

import asyncio
import uuid

from fastapi import APIRouter, Request, Response

from engine.service.answer_models import ChatCompletion, generation_responses
from engine.service.answering import respond
from engine.service.chat_answer import ChatAnswer
from engine.service.chat_body import ChatBody
from engine.service.context import ServiceContext
from engine.service.generation import Generation

router = APIRouter(tags=["generation"])


@router.post(
    "/v1/chat/completions",
    summary="Continue a conversation",
    response_model=None,
    responses=generation_responses(ChatCompletion),
)
async def chat_completions(body: ChatBody, http: Request) -> Response:
    """The next turn, `n` times; whole, or as a stream. The prompt is the model's own chat template.

    Parameters that are not listed here (tools, images, audio and so on) are refused by name.
    """
    context: ServiceContext = http.app.state.context
    context.check_model(body.model)
    messages = [{"role": m.role, "content": m.content} for m in body.messages]
    # Tokenising a long text takes long: not in the event loop.
    prompt = await asyncio.to_thread(context.chat_ids, messages)
    generation = Generation(
        context.engine,
        body.request_id or f"chatcmpl-{uuid.uuid4().hex[:12]}",
        [prompt],
        body.params(context.vocab_size, context.room_after(len(prompt))),
        streamed=body.stream,
        priority=body.priority,
        cache_salt=body.cache_salt,
    )
    answer = ChatAnswer(context, generation)
    http.state.user = body.user
    return await respond(http, generation, answer, body)
