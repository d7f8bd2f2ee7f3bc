"""The FastAPI application over one engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException

from engine import __version__
from engine.core.config import RequestError
from engine.service import chat, completions, errors, metrics, pool, server_routes, stream
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineStopped
from engine.service.guards import BodyGuard, KeyGuard, OriginGuard
from engine.service.request_log import RequestLog

_DESCRIPTION = """\
An LLM engine with a paged KV cache that shows its block pool.

The generation routes take what OpenAI clients send; parameters that are not served are refused by
name. `WS /v1/events` streams every change of the pool, a record a step.
"""


def create_app(
    context: ServiceContext,
    *,
    api_key: str | None = None,
    allowed_origins: tuple[str, ...] = (),
    events: bool = True,
) -> FastAPI:
    """Routes over `context`. The engine's thread starts and stops with the application.

    With `api_key`, everything but /health asks for it. `allowed_origins`: whose pages may use the
    routes from a browser, beside this server's own; `*` for any. Without `events` there are none of the
    routes that tell of the pool.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        context.engine.start(asyncio.get_running_loop())
        yield
        await asyncio.to_thread(context.engine.stop)

    app = FastAPI(
        title="Glasspool", description=_DESCRIPTION, version=__version__, lifespan=lifespan
    )
    app.state.context = context
    told = (pool, stream, metrics) if events else ()
    for route in (completions, chat, *told, server_routes):
        app.include_router(route.router)
    app.add_exception_handler(RequestError, errors.on_request_error)
    app.add_exception_handler(RequestValidationError, errors.on_validation_error)
    app.add_exception_handler(HTTPException, errors.on_http_error)
    app.add_exception_handler(EngineStopped, errors.on_engine_stopped)
    app.add_exception_handler(Exception, errors.on_failure)
    # The last that is added comes first.
    app.add_middleware(BodyGuard)
    if api_key is not None:
        app.add_middleware(KeyGuard, api_key=api_key)
    if allowed_origins:
        # Also answers a browser's question before the request, which carries no key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(OriginGuard, allowed=allowed_origins)
    app.add_middleware(RequestLog)
    return app
