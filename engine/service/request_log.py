"""One line a request, when it has ended: what was asked, how it ended, where its time went.

`name=value` pairs in seconds and tokens; no text of prompts or outputs. A time that was never reached
is left out.
"""

import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.service.generation import Generation

log = logging.getLogger("glasspool.requests")
_PATHS = ("/v1/completions", "/v1/chat/completions")
_PLAIN = re.compile(r"[\w./:+-]+")


class RequestLog:
    """An ASGI layer around everything else, so that refusals are told too."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in _PATHS:
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        # Nothing was answered: the client went away, or the server was told to stop at once.
        status = 499

        async def noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # The route leaves its generation here.
        state = scope.setdefault("state", {})
        try:
            await self.app(scope, receive, noting_status)
        finally:
            generation = state.get("generation")
            fields = {"route": scope["path"], "status": status}
            if generation is not None:
                fields |= _fields(generation) | {"user": state.get("user")}
            else:
                fields["duration"] = f"{time.monotonic() - started:.4f}"
            log.info(
                "request %s", " ".join(_pair(n, v) for n, v in fields.items() if v is not None)
            )


def _fields(generation: Generation) -> dict[str, object]:
    requests = generation.requests
    arrived = generation.arrived
    ended = generation.ended_at
    scheduled = [r.first_scheduled for r in requests if r.first_scheduled is not None]
    answered = [r.first_token for r in requests if r.first_token is not None]
    reasons = {str(s.finish_reason) for r in requests for s in r.sequences if s.finish_reason}
    # A client that went away does not wait for the abort, which comes after the current step.
    finish = "+".join(sorted(reasons)) if generation.ended else "abort"
    return {
        "id": generation.request_id,
        "stream": str(generation.streamed).lower(),
        "prompts": len(requests),
        "n": generation.params.n,
        "prompt_tokens": generation.prompt_tokens,
        "output_tokens": generation.output_tokens,
        "finish": finish or "abort",
        "queue": _seconds(max(scheduled, default=None), arrived),
        "first_token": _seconds(min(answered, default=None), arrived),
        "duration": _seconds(ended if ended is not None else time.monotonic(), arrived),
        "preemptions": sum(r.preemptions for r in requests),
        "recomputed_tokens": sum(r.recomputed_tokens for r in requests),
    }


def _seconds(moment: float | None, since: float) -> str | None:
    return None if moment is None else f"{moment - since:.4f}"


def _pair(name: str, value: object) -> str:
    text = str(value)
    if not _PLAIN.fullmatch(text):
        # What a client chose stays on one line and inside its quotes.
        text = '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'
    return f"{name}={text}"
