"""What the server says of itself: health, version, models; and the one thing it can be told to do."""

import asyncio
import time

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from engine import __version__
from engine.service.answer_models import (
    Health,
    Model,
    ModelList,
    ResetDone,
    Unhealthy,
    Version,
    errors,
)
from engine.service.context import ServiceContext
from engine.service.errors import error_response

router = APIRouter(tags=["server"])
_STARTED = int(time.time())


@router.get(
    "/health",
    summary="Is the engine able to serve?",
    response_model=Health,
    responses={503: {"model": Unhealthy, "description": "The engine has failed or stopped"}},
)
async def health(http: Request) -> JSONResponse:
    """200 when the model is loaded and the engine steps. Needs no API key."""
    context: ServiceContext = http.app.state.context
    engine = context.engine
    if engine.alive:
        return JSONResponse({"status": "ok", "model": context.model_name})
    why = engine.failure or "the engine has stopped"
    return JSONResponse({"status": "failed", "why": why}, 503)


@router.get("/version", summary="Glasspool's version", responses=errors(401, 403))
async def version() -> Version:
    return Version(version=__version__)


@router.get("/v1/models", summary="The served model", responses=errors(401, 403))
async def models(http: Request) -> ModelList:
    """One model is served, and this is its name."""
    return ModelList(data=[_model(http.app.state.context)])


@router.get("/v1/models/{model:path}", summary="One model", responses=errors(401, 403, 404))
async def model(model: str, http: Request) -> Model:
    context: ServiceContext = http.app.state.context
    context.check_model(model)
    return _model(context)


@router.post(
    "/reset_prefix_cache",
    summary="Forget all cached blocks",
    response_model=ResetDone,
    responses=errors(401, 403, 409, 503),
)
async def reset_prefix_cache(http: Request) -> JSONResponse:
    """Empties the prefix index. Refused with 409, and nothing changes, while a block is active."""
    context: ServiceContext = http.app.state.context
    if await asyncio.wrap_future(context.engine.reset_prefix_cache()):
        return JSONResponse({"reset": True})
    message = "blocks are active: wait until no request runs, and try again"
    return error_response(409, message, "conflict", code="blocks_active")


def _model(context: ServiceContext) -> Model:
    limit = context.engine.engine.config.max_model_len
    return Model(id=context.model_name, created=_STARTED, max_model_len=limit)
