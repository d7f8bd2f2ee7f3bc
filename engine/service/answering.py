"""How a generation reaches its client: whole or as server-sent events, until it goes away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol

import msgspec
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from engine.service.errors import error_body, error_response
from engine.service.generation import Aborted, Delta, Generation
from engine.service.generation_body import GenerationBody


class Answer(Protocol):
    """Makes bodies in the shape of one route."""

    def whole(self) -> dict[str, Any]: ...

    def chunk(self, deltas: list[Delta]) -> dict[str, Any]: ...

    def usage_chunk(self) -> dict[str, Any]: ...


async def respond(
    http: Request, generation: Generation, answer: Answer, body: GenerationBody
) -> Response:
    """Queue the generation and answer as `body` asks. Raises RequestError where it is refused."""
    # The request log tells of it.
    http.state.generation = generation
    await generation.start()
    if body.stream:
        options = body.stream_options
        include_usage = options is not None and options.include_usage
        response: Response = EventStream(generation, answer, include_usage)
    else:
        response = await _whole(http, generation, answer)
    response.headers["X-Request-Id"] = generation.request_id
    return response


async def _whole(http: Request, generation: Generation, answer: Answer) -> Response:
    """Wait for the end. A client that goes away takes its request with it."""
    try:
        await _unless_gone(generation.whole(), http.receive)
    except Aborted as error:
        return error_response(503, str(error), "server_error")
    finally:
        generation.abort()
    if not generation.ended:
        # Nobody reads this; the log has the status by which proxies name such a client.
        return Response(status_code=499)
    return Response(msgspec.json.encode(answer.whole()), media_type="application/json")


class EventStream(Response):
    """Server-sent events: a chunk for what each step gave, usage where asked for, then [DONE]."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, answer: Answer, include_usage: bool) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.generation = generation
        self.answer = answer
        self.include_usage = include_usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _unless_gone(self._send(send), receive)
        finally:
            self.generation.abort()

    async def _send(self, send: Send) -> None:
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        try:
            async for event in self._events():
                await send({"type": "http.response.body", "body": event, "more_body": True})
        except OSError:
            """The client went away while something was being sent."""
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        usage = {"usage": None} if self.include_usage else {}
        try:
            async for deltas in self.generation.deltas():
                yield _event(self.answer.chunk(deltas) | usage)
        except Aborted as error:
            yield _event(error_body(str(error), "server_error"))
        else:
            if self.include_usage:
                yield _event(self.answer.usage_chunk())
        yield b"data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


async def _unless_gone(work: Awaitable[None], receive: Receive) -> None:
    """Do `work`, and give it up when the client disconnects."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
