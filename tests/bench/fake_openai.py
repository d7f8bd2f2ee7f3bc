"""A tiny OpenAI-compatible server whose every answer is scripted, for tests of the load generator."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from engine.service.ports import free_port
from tests.servers import wait_until


@dataclass
class Answer:
    """How one request is answered.

    tokens: content chunks to send; None: as many as max_tokens. first_after, gap: seconds. status:
    other than 200 answers `error` as JSON. usage: whether it ends with token counts. cut_after: the
    connection breaks after so many chunks. hold: waits for this event after the first chunk. whole:
    answers as JSON although a stream was asked for. What was asked without a stream is answered as
    JSON anyway; choices: so many of the n then, None: all.
    """

    tokens: int | None = None
    first_after: float = 0.0
    gap: float = 0.0
    status: int = 200
    error: str = ""
    usage: bool = True
    cut_after: int | None = None
    hold: threading.Event | None = None
    whole: bool = False
    choices: int | None = None


class FakeServer:
    """Runs in a thread. `answer` decides by request number; `bodies` are what came, in order."""

    def __init__(
        self,
        answer: Callable[[int], Answer] = lambda _: Answer(),
        models: Iterable[str] = ("fake",),
    ):
        self.answer = answer
        self.models = list(models)
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[int] = set()
        self.in_flight = self.most_in_flight = 0
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.model_status = 200
        app = FastAPI()
        app.get("/v1/models")(self._models)
        app.post("/v1/completions")(self._completions)
        app.post("/v1/chat/completions")(self._chat)
        self._server = uvicorn.Server(
            uvicorn.Config(app, port=self.port, log_level="critical", timeout_graceful_shutdown=1)
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> "FakeServer":
        self._thread.start()
        wait_until(lambda: self._server.started, 20, "the fake server listens")
        return self

    def __exit__(self, *_: object) -> None:
        self.die()
        self._thread.join(20)

    def die(self) -> None:
        """Stop listening and break all connections."""
        self._server.force_exit = True
        self._server.should_exit = True

    async def _models(self) -> Response:
        data = [{"id": name, "object": "model"} for name in self.models]
        return JSONResponse({"object": "list", "data": data}, self.model_status)

    async def _completions(self, http: Request) -> Response:
        return await self._respond(http, lambda text: {"text": text}, None)

    async def _chat(self, http: Request) -> Response:
        role = {"delta": {"role": "assistant", "content": ""}}
        return await self._respond(http, lambda text: {"delta": {"content": text}}, role)

    async def _respond(
        self, http: Request, choice: Callable[[str], dict], first: dict | None
    ) -> Response:
        body = await http.json()
        answer = self.answer(len(self.bodies))
        self.bodies.append(body)
        self.headers.append(dict(http.headers))
        self.connections.add(http.client.port)
        if answer.status != 200:
            return JSONResponse({"error": {"message": answer.error}}, answer.status)
        if answer.whole or not body.get("stream"):
            return JSONResponse(self._whole(body, answer, choice))
        return StreamingResponse(
            self._stream(body, answer, choice, first), media_type="text/event-stream"
        )

    def _whole(self, body: dict, answer: Answer, choice: Callable[[str], dict]) -> dict:
        n = body.get("n", 1)
        tokens = body["max_tokens"] if answer.tokens is None else answer.tokens
        given = n if answer.choices is None else answer.choices
        told = {"choices": [choice("all") | {"finish_reason": "length"} for _ in range(given)]}
        return told | ({"usage": _usage(body, n * tokens)} if answer.usage else {})

    async def _stream(
        self, body: dict, answer: Answer, choice: Callable[[str], dict], first: dict | None
    ) -> AsyncIterator[str]:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        n = body.get("n", 1)
        tokens = body["max_tokens"] if answer.tokens is None else answer.tokens
        try:
            if first is not None:
                yield _event({"choices": [first]})
            await asyncio.sleep(answer.first_after)
            for number in range(tokens):
                if number == answer.cut_after:
                    raise ConnectionResetError("as scripted")
                if number:
                    await asyncio.sleep(answer.gap)
                for index in range(n):
                    word = choice(f" word{number}") | {"index": index, "finish_reason": None}
                    yield _event({"choices": [word]})
                while answer.hold is not None and not answer.hold.is_set():
                    await asyncio.sleep(0.01)
            for index in range(n):
                yield _event(
                    {"choices": [choice("") | {"index": index, "finish_reason": "length"}]}
                )
            if answer.usage:
                yield _event({"choices": [], "usage": _usage(body, n * tokens)})
            yield "data: [DONE]\n\n"
        finally:
            self.in_flight -= 1


def _usage(body: dict, completion_tokens: int) -> dict:
    prompt = body.get("prompt") or body["messages"][0]["content"].split()
    return {"prompt_tokens": len(prompt), "completion_tokens": completion_tokens}


def _event(chunk: dict) -> str:
    return f"data: {json.dumps(chunk)}\n\n"
