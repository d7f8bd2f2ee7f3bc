"""Random requests made from the OpenAPI document: no 500, and answers of the documented shape."""

import contextlib

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ROUTES = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/pool"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("GET", "/health"),
    ("GET", "/version"),
    ("GET", "/metrics"),
    ("POST", "/reset_prefix_cache"),
]


@pytest.fixture(scope="module")
def document(engine_server):
    return schemathesis.openapi.from_url(f"{engine_server.url}/openapi.json")


def test_all_routes_of_the_document_are_tried(document):
    found = [operation.ok() for operation in document.get_all_operations()]
    assert sorted((o.method.upper(), o.path) for o in found) == sorted(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_random_requests_get_documented_answers_and_no_500(document, method, path, mode):
    operation = document[path][method]
    generation_mode = schemathesis.GenerationMode(mode)

    @given(case=operation.as_strategy(generation_mode=generation_mode))
    @settings(
        max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    def try_one(case) -> None:
        if mode == "positive" and isinstance(case.body, dict):
            # The right model, and what the tiny one has room for: the rest is left to chance.
            case.body.pop("model", None)
            case.body["max_tokens"] = 8
            case.body.pop("max_completion_tokens", None)
        answer = case.call(timeout=60)
        statuses.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    statuses: set[int] = set()
    # Nothing about a route without parameters can be wrong.
    with contextlib.suppress(Unsatisfiable):
        try_one()
    if mode == "positive":
        assert 200 in statuses or "{" in path


def test_the_engine_is_well_after_that(engine_server):
    answer = engine_server.complete("Hello", max_tokens=3, ignore_eos=True)
    assert answer.json()["usage"]["completion_tokens"] == 3


def test_every_route_and_parameter_says_what_it_is(engine_server):
    document = httpx.get(f"{engine_server.url}/openapi.json").json()
    for path, methods in document["paths"].items():
        for route in methods.values():
            assert route["summary"], path
            assert route["tags"], path
    for name in ("CompletionBody", "ChatBody"):
        fields = document["components"]["schemas"][name]["properties"]
        assert [field for field, about in fields.items() if not about.get("description")] == []
