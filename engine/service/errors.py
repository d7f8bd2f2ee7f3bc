"""Errors as OpenAI clients expect them: a JSON object that names message, type and parameter."""

from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from engine.core.admission import QueueFullError
from engine.core.config import RequestError
from engine.service.context import ModelNotFound
from engine.service.engine_thread import EngineStopped


def error_body(
    message: str, kind: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_response(
    status: int, message: str, kind: str, param: str | None = None, code: str | None = None
) -> JSONResponse:
    """An OpenAI-shaped error."""
    return JSONResponse(error_body(message, kind, param, code), status_code=status)


async def on_request_error(_: Request, error: RequestError) -> JSONResponse:
    if isinstance(error, QueueFullError):
        response = error_response(503, str(error), "server_error", code="queue_full")
        response.headers["Retry-After"] = "1"
        return response
    if isinstance(error, ModelNotFound):
        return error_response(
            404, str(error), "invalid_request_error", error.parameter, "model_not_found"
        )
    return error_response(400, str(error), "invalid_request_error", error.parameter)


async def on_validation_error(http: Request, error: RequestValidationError) -> JSONResponse:
    """The first fault of a body, named by its parameter."""
    if "json" not in http.headers.get("content-type", ""):
        message = "the body is not sent as JSON: add the header Content-Type: application/json"
        return error_response(400, message, "invalid_request_error")
    first = error.errors()[0]
    place = [part for part in first["loc"] if part != "body"]
    # Of a body that is no JSON the place is a character; it has no parameter.
    param = place[0] if place and isinstance(place[0], str) else None
    name = f"parameter {_path(place)}"
    if first["type"] == "extra_forbidden":
        message = f"{name} is not supported by this server: leave it out"
    elif param is None or first["type"] == "json_invalid":
        message, param = f"the body is not valid: {_reason(first)}", None
    elif first["type"] == "missing":
        message = f"{name} is missing: add it"
    else:
        message = f"{name} is not valid: {_reason(first)}"
    return error_response(400, message, "invalid_request_error", param)


def _path(place: list[str | int]) -> str:
    """messages, 0, role as messages[0].role. Names that stand for types are left out."""
    path = ""
    for part in place:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "int", "float", "bool"):
            path += f".{part}" if path else part
    return path


def _reason(fault: dict[str, Any]) -> str:
    return fault["msg"].removeprefix("Value error, ")


async def on_http_error(_: Request, error: HTTPException) -> JSONResponse:
    response = error_response(error.status_code, str(error.detail), "invalid_request_error")
    response.headers.update(error.headers or {})
    return response


async def on_failure(_: Request, error: Exception) -> JSONResponse:
    """A fault of this server; its traceback goes to the log."""
    message = f"the server failed ({type(error).__name__}): its log has the reason"
    return error_response(500, message, "server_error")


async def on_engine_stopped(_: Request, error: EngineStopped) -> JSONResponse:
    return error_response(503, str(error), "server_error")
