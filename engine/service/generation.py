"""One client's call in the engine: a prompt or several, n completions of each, as they come.

    engine's thread                          event loop
    on_token(sequence) --.                .--> deltas(), whole(): what handlers await
    on_finish(request) ---`-> Outbox ----'

Choices are numbered as OpenAI does: those of the first prompt come first.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec

from engine.core.config import SamplingParams
from engine.core.drawn import Drawn
from engine.core.sequence import Request, Sequence
from engine.events.records import FinishReason
from engine.service.engine_thread import EngineStopped, EngineThread


class Aborted(RuntimeError):
    """The engine ended the call before it was complete."""


class Delta(msgspec.Struct, gc=False):
    """What is new of one choice. `drawn` is filled where logprobs are asked for."""

    choice: int
    text: str
    drawn: list[Drawn]
    reason: FinishReason | None


class Generation:
    """Requests that one client waits for. With `streamed`, its tokens are delivered as they are drawn."""

    def __init__(
        self,
        engine: EngineThread,
        request_id: str,
        prompts: list[list[int]],
        params: SamplingParams,
        *,
        streamed: bool = False,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> None:
        self.engine = engine
        self.request_id = request_id
        self.params = params
        self.streamed = streamed
        self.arrived = time.monotonic()
        self.ended_at: float | None = None
        self.requests = [
            Request(
                request_id if len(prompts) == 1 else f"{request_id}-{number}",
                prompt,
                params,
                self.arrived,
                on_finish=self._on_finish,
                on_token=self._on_token if streamed else None,
                priority=priority,
                cache_salt=cache_salt,
            )
            for number, prompt in enumerate(prompts)
        ]
        self._first_choice = {
            request.request_id: number * params.n for number, request in enumerate(self.requests)
        }
        # By choice, how much of text and drawn tokens was delivered. The engine's thread owns it.
        self._told: dict[int, tuple[int, int]] = {}
        self._unfinished = len(self.requests)
        self._deltas: dict[int, Delta] = {}
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Queue all prompts, or none. Raises RequestError and EngineStopped."""
        await asyncio.wrap_future(self.engine.add(self.requests))

    @property
    def ended(self) -> bool:
        return self._unfinished == 0

    async def whole(self) -> None:
        """Return when all choices have ended. Raises Aborted."""
        while not self.ended:
            await self._wait()
        self._refuse_aborted()

    async def deltas(self) -> AsyncIterator[list[Delta]]:
        """What is new, each choice once, until all have ended. A reader that lags gets more at once.

        Raises Aborted.
        """
        while True:
            ended = self.ended
            deltas, self._deltas = self._deltas, {}
            if deltas:
                yield list(deltas.values())
            elif ended:
                break
            else:
                await self._wait()
        self._refuse_aborted()

    def abort(self) -> None:
        """End what is unfinished; harmless at any time."""
        if not self.ended:
            try:
                self.engine.abort(self.requests)
            except EngineStopped:
                """It has aborted everything itself."""

    @property
    def prompt_tokens(self) -> int:
        return sum(len(request.prompt) for request in self.requests)

    @property
    def output_tokens(self) -> int:
        return sum(request.num_output for request in self.requests)

    async def _wait(self) -> None:
        await self._news.wait()
        self._news.clear()

    def _refuse_aborted(self) -> None:
        if any(request.finish_reason is FinishReason.ABORT for request in self.requests):
            raise Aborted("the engine aborted the request: it is shutting down, or was told to")

    # -- called by the engine's thread --------------------------------------------------------

    def _on_token(self, sequence: Sequence) -> None:
        choice = self._first_choice[sequence.request.request_id] + sequence.index
        shown, drawn = self._told.get(choice, (0, 0))
        text = sequence.detokenizer.text
        delta = Delta(choice, text[shown:], sequence.drawn[drawn:], sequence.finish_reason)
        self._told[choice] = (len(text), len(sequence.drawn))
        # Half a character, or what may begin a stop string, is nothing to tell yet.
        if delta.text or delta.drawn or delta.reason is not None:
            self.engine.outbox.put(self._receive, delta)

    def _on_finish(self, request: Request) -> None:
        self.engine.outbox.put(self._request_ended, request)

    # -- called by the event loop -------------------------------------------------------------

    def _receive(self, delta: Delta) -> None:
        waiting = self._deltas.setdefault(delta.choice, delta)
        if waiting is not delta:
            waiting.text += delta.text
            waiting.drawn += delta.drawn
            waiting.reason = delta.reason
        self._news.set()

    def _request_ended(self, _: Request) -> None:
        self._unfinished -= 1
        if self.ended:
            self.ended_at = time.monotonic()
        self._news.set()
