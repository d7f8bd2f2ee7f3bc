"""One request to an OpenAI-compatible server, sent and measured."""

import asyncio
import time

import httpx
import msgspec

from engine.bench.serve_prompts import Endpoint
from engine.bench.serve_stream import StreamReading, error_message
from engine.core.config import ConfigError

CONNECT_SECONDS = 30
# Shorter than servers keep an idle connection (uvicorn: 5 s): one that the server closes just as it
# is used again would count as a failed request.
KEEPALIVE_SECONDS = 2


class Failure(msgspec.Struct, frozen=True):
    """Why a request failed. status: of HTTP; None where the connection failed."""

    status: int | None
    message: str


class RequestRecord:
    """One request of a run. Times are seconds on the monotonic clock.

    due: when the schedule wanted it sent. sent: when it was. ended: when its answer, or the attempt,
    was over. cut_off: it had not ended when the run was stopped.
    """

    def __init__(self, due: float, prompt_tokens: int, output_tokens: int) -> None:
        self.due = due
        self.asked_prompt_tokens = prompt_tokens
        self.asked_output_tokens = output_tokens
        self.sent = due
        self.ended: float | None = None
        self.reading = StreamReading()
        self.failure: Failure | None = None
        self.cut_off = False

    @property
    def ok(self) -> bool:
        return self.ended is not None and self.failure is None and not self.cut_off


class Client:
    """A server's address and a connection pool; one for a run."""

    def __init__(self, url: str, endpoint: Endpoint, api_key: str | None, timeout: float) -> None:
        """`timeout`: seconds without a byte after which a request has failed."""
        self.url = url
        self.endpoint = endpoint
        # A server that compressed the stream would hold chunks back.
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self.http = httpx.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS), pool=None),
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_SECONDS),
        )

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def send(self, record: RequestRecord, body: bytes) -> None:
        """Send a body, read its answer to the end, and write into the record what was seen.

        Latencies count from here, connecting included. Whatever the server or the network does ends
        as the record's failure.
        """
        record.sent = time.monotonic()
        try:
            record.failure = await self._stream(record, body)
        except httpx.HTTPError as error:
            record.failure = Failure(None, _said(error))
        except asyncio.CancelledError:
            record.cut_off = True
            raise
        finally:
            record.ended = time.monotonic()

    async def _stream(self, record: RequestRecord, body: bytes) -> Failure | None:
        async with self.http.stream("POST", self.endpoint.path, content=body) as answer:
            if answer.status_code != 200:
                return Failure(answer.status_code, error_message(await answer.aread()))
            kind = answer.headers.get("content-type", "no content type")
            if not kind.startswith("text/event-stream"):
                return Failure(200, f"the answer is {kind}, not a stream: this server can't stream")
            async for data in answer.aiter_raw():
                record.reading.feed(data, time.monotonic())
            fault = record.reading.fault()
            return Failure(200, fault) if fault else None

    async def first_model(self) -> str | None:
        """The first of the server's models; None where it does not tell.

        Raises ConfigError where nothing answers, or wants a key.
        """
        try:
            answer = await self.http.get("/v1/models")
        except httpx.HTTPError as error:
            raise ConfigError(
                f"nothing answers at {self.url} ({_said(error)}): start a server there, or give "
                "another --url"
            ) from None
        if answer.status_code in (401, 403):
            raise ConfigError(
                f"{self.url} answers {answer.status_code}: give its key with --api-key or "
                "GLASSPOOL_API_KEY"
            )
        try:
            return msgspec.json.decode(answer.content, type=_Models).data[0].id
        except (msgspec.MsgspecError, UnicodeDecodeError, IndexError):
            return None

    async def why_gone(self, seconds: float) -> str | None:
        """None where the server still answers anything within so many seconds; else why not."""
        try:
            await self.http.get("/v1/models", timeout=seconds)
        except httpx.HTTPError as error:
            return _said(error)
        return None


def _said(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        timeout = error.request.extensions["timeout"]
        if isinstance(error, httpx.ConnectTimeout):
            return f"no connection within {timeout['connect']:g} s"
        return f"no byte for {timeout['read']:g} s"
    return str(error) or type(error).__name__


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]
