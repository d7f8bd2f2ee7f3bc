"""Chat completions as OpenAI clients expect them: whole, or in chunks."""

import time
from typing import Any

from engine.core.drawn import Drawn, TokenLogprob
from engine.service.completion_answer import prompt_logprobs, usage
from engine.service.context import ServiceContext
from engine.service.generation import Delta, Generation


class ChatAnswer:
    """Makes the bodies of one call's answer."""

    def __init__(self, context: ServiceContext, generation: Generation) -> None:
        self.context = context
        self.generation = generation
        self.created = int(time.time())
        self._begun: set[int] = set()

    def whole(self) -> dict[str, Any]:
        """The answer when all has ended, with `prompt_logprobs` where they were asked for."""
        (request,) = self.generation.requests
        if request.beams is not None:
            texts = [
                (self.context.text(beam.output), beam.reason, None) for beam in request.beams.best
            ]
        else:
            texts = [
                (s.detokenizer.text, s.finish_reason, self._logprobs(s.drawn))
                for s in request.sequences
            ]
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": logprobs,
                "finish_reason": str(reason),
            }
            for index, (text, reason, logprobs) in enumerate(texts)
        ]
        body = self._body("chat.completion", choices) | {"usage": usage(self.generation)}
        if request.params.prompt_logprobs is not None:
            body["prompt_logprobs"] = prompt_logprobs(self.context, request)
        return body

    def chunk(self, deltas: list[Delta]) -> dict[str, Any]:
        """A chunk with what is new."""
        choices = []
        for delta in deltas:
            told: dict[str, str] = {"content": delta.text} if delta.text or delta.drawn else {}
            if delta.choice not in self._begun:
                self._begun.add(delta.choice)
                told = {"role": "assistant", "content": delta.text}
            choices.append(
                {
                    "index": delta.choice,
                    "delta": told,
                    "logprobs": self._logprobs(delta.drawn),
                    "finish_reason": None if delta.reason is None else str(delta.reason),
                }
            )
        return self._body("chat.completion.chunk", choices)

    def usage_chunk(self) -> dict[str, Any]:
        return self._body("chat.completion.chunk", []) | {"usage": usage(self.generation)}

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.generation.request_id,
            "object": kind,
            "created": self.created,
            "model": self.context.model_name,
            "choices": choices,
        }

    def _logprobs(self, drawn: list[Drawn]) -> dict[str, Any] | None:
        if self.generation.params.logprobs is None:
            return None
        content = [
            self._told(token.chosen) | {"top_logprobs": [self._told(best) for best in token.top]}
            for token in drawn
        ]
        return {"content": content, "refusal": None}

    def _told(self, token: TokenLogprob) -> dict[str, Any]:
        text = self.context.token_text(token.token)
        # Part of a character has bytes that its text does not tell.
        data = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
        return {"token": text, "logprob": token.logprob, "bytes": data}
