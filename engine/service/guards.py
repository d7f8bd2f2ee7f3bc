"""What stands before the routes: who may ask, from where, and how much.

Written as ASGI layers, so that they hold for HTTP and WebSocket alike, and for every route.
"""

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.service.errors import error_response

MAX_BODY_BYTES = 8 * 1024 * 1024
"""A prompt of 1,000,000 token ids is about 7 MB of JSON."""
_MOST_DISCARDED = 8 * MAX_BODY_BYTES


class KeyGuard:
    """Everything but /health needs `Authorization: Bearer KEY`."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self.app = app
        self._expected = f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] == "/health":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("authorization", "").encode()
        # The time of this comparison tells nothing of where they differ.
        if hmac.compare_digest(given, self._expected):
            await self.app(scope, receive, send)
            return
        message = "this server asks for its API key: send the header Authorization: Bearer KEY"
        if given:
            message = "the API key is not this server's: check the header Authorization: Bearer KEY"
        await _refuse(scope, receive, send, 401, message, "invalid_api_key")


class OriginGuard:
    """A browser sends the page's Origin. Only this server's own pages, and allowed ones, may ask.

    Programs send none. Without this, any page that somebody visits could use an engine on that
    person's machine: neither WebSockets nor plain POSTs are held back by the browser.
    """

    def __init__(self, app: ASGIApp, allowed: tuple[str, ...] = ()) -> None:
        self.app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            headers = Headers(scope=scope)
            origin = headers.get("origin")
            own = origin is None or urlsplit(origin).netloc == headers.get("host")
            if not own and origin not in self._allowed and "*" not in self._allowed:
                message = (
                    f"pages of the Origin {origin[:100]} may not use this server: "
                    "start it with --allowed-origins for those that may"
                )
                await _refuse(scope, receive, send, 403, message, "wrong_origin")
                return
        await self.app(scope, receive, send)


class BodyGuard:
    """Refuses a body above MAX_BODY_BYTES; no more than that is ever held of it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        chunks: list[bytes] = []
        size = 0
        more = True
        while more and size <= _MOST_DISCARDED:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if size <= MAX_BODY_BYTES:
                chunks.append(message.get("body", b""))
            else:
                # Read on, for a while: a client that is still sending does not see an answer.
                chunks.clear()
        if size > MAX_BODY_BYTES:
            text = (
                f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB, the most that this server "
                "takes: send less at once"
            )
            await _refuse(scope, receive, send, 413, text, "body_too_large")
            return
        await self.app(scope, _replay(b"".join(chunks), receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    """`receive`, with the body in one piece first."""
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(
    scope: Scope, receive: Receive, send: Send, status: int, message: str, code: str
) -> None:
    response = error_response(status, message, "invalid_request_error", code=code)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if scope["type"] == "websocket" and "websocket.http.response" not in scope["extensions"]:
        await send({"type": "websocket.close", "code": 1008, "reason": message})
    else:
        await response(scope, receive, send)
