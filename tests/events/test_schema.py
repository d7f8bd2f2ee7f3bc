"""The schema and the page about the format say what the code does."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest
import pyzstd

from engine.events.records import SCHEMA_VERSION, AnyEvent
from engine.events.schema import schema, schema_text
from tests.demo_data import OVERVIEW, TRACES
from tests.events.traces import busy_run

DOCS = Path(__file__).parents[2] / "docs"


def validator():
    return jsonschema.Draft202012Validator(schema())


def test_the_committed_schema_is_the_one_that_the_types_make():
    assert (DOCS / "events.schema.json").read_text() == schema_text(), (
        "run: python -m engine.events.schema > docs/events.schema.json"
    )


def test_it_is_a_schema_and_names_its_version():
    jsonschema.Draft202012Validator.check_schema(schema())
    assert schema()["$id"].endswith(f":{SCHEMA_VERSION}")


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_record_of_the_demo_satisfies_it(path):
    valid = validator()
    for line in pyzstd.ZstdFile(path).read().splitlines():
        valid.validate(json.loads(line))


def test_every_record_of_a_run_with_every_event_satisfies_it():
    valid = validator()
    head, records = busy_run()
    for record in [head, *records]:
        valid.validate(json.loads(msgspec.json.encode(record)))


@pytest.mark.parametrize(
    "record",
    [
        {"type": "step"},
        {"type": "gap", "after": 1, "count": -1, "why": "slow"},
        {"type": "gap", "after": "1", "count": 1, "why": "slow"},
        {"type": "nothing"},
    ],
)
def test_what_is_no_record_does_not(record):
    assert not validator().is_valid(record)


def test_the_page_names_every_event():
    page = (DOCS / "trace-format.md").read_text()
    for kind in AnyEvent.__args__:
        assert kind.__struct_config__.tag in page


def test_the_pages_example_runs():
    example = (DOCS / "trace-format.md").read_text().split("```python\n")[1].split("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", example, str(OVERVIEW)], capture_output=True, text=True, check=True
    )
    first, second, third = done.stdout.splitlines()
    assert first == "SmolLM2-135M-Instruct: 263 steps, at most 96 of 96 blocks active"
    assert second == "17 preemptions, 304 tokens found in the prefix index"
    assert third == "the trace is whole"
