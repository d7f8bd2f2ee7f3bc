"""The FastAPI application over one engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from engine import __version__
from engine.core.config import RequestError
from engine.service import completions, errors, metrics, stream
from engine.service.context import ServiceContext
from engine.service.engine_thread import EngineStopped


def create_app(context: ServiceContext) -> FastAPI:
    """Routes over `context`. The engine's thread starts and stops with the application."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        context.engine.start()
        yield
        context.engine.stop()

    app = FastAPI(title="Glasspool", version=__version__, lifespan=lifespan)
    app.state.context = context
    for route in (completions, stream, metrics):
        app.include_router(route.router)
    app.add_exception_handler(RequestError, errors.on_request_error)
    app.add_exception_handler(RequestValidationError, errors.on_validation_error)
    app.add_exception_handler(HTTPException, errors.on_http_error)
    app.add_exception_handler(EngineStopped, errors.on_engine_stopped)

    @app.get("/health", summary="Is the engine able to serve?")
    async def health(http: Request) -> JSONResponse:
        engine = context.engine
        if engine.alive:
            return JSONResponse({"status": "ok", "model": context.model_name})
        return JSONResponse(
            {"status": "failed", "why": engine.failure or "the engine has stopped"}, 503
        )

    @app.get("/v1/models", summary="The served model")
    async def models() -> dict:
        model = {"id": context.model_name, "object": "model", "owned_by": "glasspool"}
        return {"object": "list", "data": [model]}

    return app
