"""One request to an OpenAI-compatible server, sent and measured."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import msgspec

from engine.bench.serve_prompts import Endpoint
from engine.bench.serve_stream import StreamReading, error_message
from engine.bench.serve_whole import WholeReading
from engine.core.config import ConfigError
from engine.workloads.request import WorkloadRequest

CONNECT_SECONDS = 30
# Shorter than servers keep an idle connection (uvicorn: 5 s): one that the server closes just as it
# is used again would count as a failed request.
KEEPALIVE_SECONDS = 2
# httpx looks through all connections of a pool for every request: a thousand in one pool cost it
# many milliseconds a request, in pools of a few they cost little.
CONNECTIONS_PER_POOL = 8


class Failure(msgspec.Struct, frozen=True):
    """Why a request failed. status: of HTTP; None where the connection failed."""

    status: int | None
    message: str


class RequestRecord:
    """One request of a run. Times are seconds on the monotonic clock.

    due: when the schedule wanted it sent. sent: when it was. ended: when its answer, or the attempt,
    was over. cut_off: it had not ended when the run was stopped. reading: of its answer, which comes
    whole where it is a beam search's.
    """

    def __init__(self, due: float, request: WorkloadRequest) -> None:
        self.due = due
        self.asked_prompt_tokens = request.prompt_tokens
        self.asked_output_tokens = request.n * request.output_tokens
        self.sent = due
        self.ended: float | None = None
        self.reading: StreamReading | WholeReading = (
            WholeReading(request.n) if request.use_beam_search else StreamReading(request.n)
        )
        self.failure: Failure | None = None
        self.cut_off = False

    @property
    def ok(self) -> bool:
        return self.ended is not None and self.failure is None and not self.cut_off


class Client:
    """A server's address and the connections to it; one for a run."""

    def __init__(self, url: str, endpoint: Endpoint, api_key: str | None, timeout: float) -> None:
        """`timeout`: seconds without a byte after which a request has failed."""
        self.url = url
        self.endpoint = endpoint
        self._timeout = httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS), pool=None)
        # A server that compressed the stream would hold chunks back.
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._tls = httpx.create_ssl_context()
        self._pools: list[_Pool] = []

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        for pool in self._pools:
            await pool.http.aclose()

    @contextmanager
    def _http(self) -> Iterator[httpx.AsyncClient]:
        """A pool with a free place: the first, so that as few connections as can be are in use."""
        pool = next((p for p in self._pools if p.busy < CONNECTIONS_PER_POOL), None)
        if pool is None:
            pool = _Pool(self._new_http())
            self._pools.append(pool)
        pool.busy += 1
        try:
            yield pool.http
        finally:
            pool.busy -= 1

    def _new_http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            headers=self._headers,
            timeout=self._timeout,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_SECONDS),
            verify=self._tls,
        )

    async def send(self, record: RequestRecord, body: bytes) -> None:
        """Send a body, read its answer to the end, and write into the record what was seen.

        Latencies count from here, connecting included. Whatever the server or the network does ends
        as the record's failure.
        """
        record.sent = time.monotonic()
        try:
            with self._http() as http:
                record.failure = await self._ask(http, record, body)
        except httpx.HTTPError as error:
            record.failure = Failure(None, _said(error))
        except asyncio.CancelledError:
            record.cut_off = True
            raise
        finally:
            record.ended = time.monotonic()

    async def _ask(
        self, http: httpx.AsyncClient, record: RequestRecord, body: bytes
    ) -> Failure | None:
        async with http.stream("POST", self.endpoint.path, content=body) as answer:
            if answer.status_code != 200:
                return Failure(answer.status_code, error_message(await answer.aread()))
            kind = answer.headers.get("content-type", "no content type")
            if not kind.startswith(record.reading.media_type):
                return Failure(200, f"the answer is {kind}, not {record.reading.media_type}")
            async for data in answer.aiter_raw():
                record.reading.feed(data, time.monotonic())
            fault = record.reading.fault()
            return Failure(200, fault) if fault else None

    async def first_model(self) -> str | None:
        """The first of the server's models; None where it does not tell.

        Raises ConfigError where nothing answers, or wants a key.
        """
        try:
            with self._http() as http:
                answer = await http.get("/v1/models")
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
            with self._http() as http:
                await http.get("/v1/models", timeout=seconds)
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


@dataclass
class _Pool:
    http: httpx.AsyncClient
    busy: int = 0


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]
