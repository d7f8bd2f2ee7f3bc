"""Completions as OpenAI clients expect them: whole, or in chunks."""

import time
from typing import Any

from engine.core.drawn import Drawn, PromptToken, TokenLogprob
from engine.core.sequence import Request
from engine.service.context import ServiceContext
from engine.service.generation import Delta, Generation


class CompletionAnswer:
    """Makes the bodies of one call's answer. `texts` are its prompts where they are to be echoed."""

    def __init__(
        self, context: ServiceContext, generation: Generation, texts: list[str] | None
    ) -> None:
        self.context = context
        self.generation = generation
        self.texts = texts
        self.created = int(time.time())
        # Characters of tokens told so far, by choice: where the next one's text begins.
        self._offsets: dict[int, int] = {}

    def whole(self) -> dict[str, Any]:
        """The answer when all has ended, with `prompt_logprobs` where they were asked for."""
        choices = []
        for request in self.generation.requests:
            choices += self._choices(request, first=len(choices))
        return self._body(choices) | {"usage": usage(self.generation)}

    def chunk(self, deltas: list[Delta]) -> dict[str, Any]:
        """A chunk with what is new."""
        choices = []
        for delta in deltas:
            request = self.generation.requests[delta.choice // self.generation.params.n]
            text, told = self._begin(request, delta.choice)
            reason = None if delta.reason is None else str(delta.reason)
            told = self._logprobs(delta.choice, told, delta.drawn)
            choices.append(_choice(delta.choice, text + delta.text, reason, told))
        return self._body(choices)

    def usage_chunk(self) -> dict[str, Any]:
        return self._body([]) | {"usage": usage(self.generation)}

    def _body(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.generation.request_id,
            "object": "text_completion",
            "created": self.created,
            "model": self.context.model_name,
            "choices": choices,
        }

    def _choices(self, request: Request, first: int) -> list[dict[str, Any]]:
        if request.beams is not None:
            choices = [
                _choice(first + i, self.context.text(beam.output), str(beam.reason), None)
                for i, beam in enumerate(request.beams.best)
            ]
        else:
            choices = []
            for sequence in request.sequences:
                number = first + sequence.index
                text, told = self._begin(request, number)
                told = self._logprobs(number, told, sequence.drawn)
                text += sequence.detokenizer.text
                choices.append(_choice(number, text, str(sequence.finish_reason), told))
        if request.params.prompt_logprobs is not None and self.texts is None:
            told = prompt_logprobs(self.context, request)
            choices = [choice | {"prompt_logprobs": told} for choice in choices]
        return choices

    def _begin(self, request: Request, choice: int) -> tuple[str, list[PromptToken | None]]:
        """Text and tokens that a choice begins with: its prompt where it is to be echoed."""
        if self.texts is None or choice in self._offsets:
            return "", []
        self._offsets[choice] = 0
        text = self.texts[choice // request.params.n]
        return text, ([None, *request.prompt_tokens] if request.params.logprobs is not None else [])

    def _logprobs(
        self, choice: int, prompt: list[PromptToken | None], drawn: list[Drawn]
    ) -> dict[str, Any] | None:
        """The OpenAI shape. The prompt's first token has no likelihood: nothing comes before it."""
        if self.generation.params.logprobs is None:
            return None
        request = self.generation.requests[choice // self.generation.params.n]
        told: dict[str, list] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        offset = self._offsets.get(choice, 0)
        for position, token in enumerate([*prompt, *drawn]):
            chosen = None if token is None else token.chosen
            number = request.prompt[position] if chosen is None else chosen.token
            text = self.context.token_text(number)
            told["tokens"].append(text)
            told["token_logprobs"].append(None if chosen is None else chosen.logprob)
            told["top_logprobs"].append(None if token is None else self._top(token.top))
            told["text_offset"].append(offset)
            offset += len(text)
        self._offsets[choice] = offset
        return told

    def _top(self, tokens: tuple[TokenLogprob, ...]) -> dict[str, float]:
        """Token text to logprob; of tokens with the same text the likelier one."""
        top: dict[str, float] = {}
        for told in tokens:
            top.setdefault(self.context.token_text(told.token), told.logprob)
        return top


def prompt_logprobs(context: ServiceContext, request: Request) -> list[dict[str, Any] | None]:
    """One entry a prompt token: by token id, how likely it and the best ones were."""
    return [None] + [
        {
            str(told.token): {
                "logprob": told.logprob,
                "rank": told.rank,
                "decoded_token": context.token_text(told.token),
            }
            for told in (token.chosen, *token.top)
        }
        for token in request.prompt_tokens
    ]


def usage(generation: Generation) -> dict[str, int]:
    prompt, output = generation.prompt_tokens, generation.output_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }


def _choice(index: int, text: str, reason: str | None, logprobs: dict | None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": reason, "logprobs": logprobs}
