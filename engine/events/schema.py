"""The JSON Schema of the records, made from their types.

python -m engine.events.schema > docs/events.schema.json
"""

import sys
from typing import Any

import msgspec

from engine.events.records import SCHEMA_VERSION, Record


def schema() -> dict[str, Any]:
    """A schema (draft 2020-12) that each line of a trace or stream satisfies."""
    (found,), parts = msgspec.json.schema_components([Record], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:glasspool:events:{SCHEMA_VERSION}",
        "title": f"Glasspool records, schema version {SCHEMA_VERSION}",
        "description": "One line of a trace or of the event stream. See docs/trace-format.md.",
        **found,
        "$defs": parts,
    }


def schema_text() -> str:
    """The schema as it is committed: sorted, so that a change is one line of a diff."""
    data = msgspec.json.encode(schema(), order="sorted")
    return msgspec.json.format(data, indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
