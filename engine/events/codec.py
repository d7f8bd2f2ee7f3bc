"""Records to JSON lines and back."""

import msgspec

from engine.events.records import SCHEMA_VERSION, Header, Record

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


class RecordError(ValueError):
    """A line is not a record of this contract. The message names the fault."""


def encode(record: Record) -> bytes:
    """One record as one line of JSON, without the line end."""
    return _encoder.encode(record)


def decode(line: bytes | str) -> Record:
    """The record in one line of JSON.

    Raises RecordError for anything else, and for a header of another schema version.
    """
    try:
        record = _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise RecordError(f"not a Glasspool record: {error}") from None
    if isinstance(record, Header) and record.schema_version != SCHEMA_VERSION:
        raise RecordError(
            f"schema version {record.schema_version} is not supported, "
            f"this is version {SCHEMA_VERSION}: read it with the Glasspool that wrote it"
        )
    return record
