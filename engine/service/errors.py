"""Errors as OpenAI clients expect them: a JSON object that names message, type and parameter."""

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from engine.core.admission import QueueFullError
from engine.core.config import RequestError
from engine.service.engine_thread import EngineStopped


def error_response(
    status: int, message: str, kind: str, param: str | None = None, code: str | None = None
) -> JSONResponse:
    """An OpenAI-shaped error."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return JSONResponse({"error": error}, status_code=status)


async def on_request_error(_: Request, error: RequestError) -> JSONResponse:
    if isinstance(error, QueueFullError):
        response = error_response(503, str(error), "server_error", code="queue_full")
        response.headers["Retry-After"] = "1"
        return response
    return error_response(400, str(error), "invalid_request_error", error.parameter)


async def on_validation_error(http: Request, error: RequestValidationError) -> JSONResponse:
    """The first fault of a body, named by its parameter."""
    if "json" not in http.headers.get("content-type", ""):
        message = "the body is not sent as JSON: add the header Content-Type: application/json"
        return error_response(400, message, "invalid_request_error")
    first = error.errors()[0]
    param = next((str(part) for part in first["loc"] if part != "body"), None)
    if first["type"] == "extra_forbidden":
        message = f"parameter {param} is not supported by this server: leave it out"
    elif param is None or first["type"] == "json_invalid":
        message, param = f"the body is not valid: {first['msg']}", None
    else:
        message = f"parameter {param} is not valid: {first['msg']}"
    return error_response(400, message, "invalid_request_error", param)


async def on_http_error(_: Request, error: HTTPException) -> JSONResponse:
    return error_response(error.status_code, str(error.detail), "invalid_request_error")


async def on_engine_stopped(_: Request, error: EngineStopped) -> JSONResponse:
    return error_response(503, str(error), "server_error")
