"""Records to JSON lines and back."""

import msgspec

from engine.events.records import SCHEMA_VERSION, Header, Record

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)

LONGEST_REASON = 200
"""Characters that a message quotes of what is wrong with a line."""


class RecordError(ValueError):
    """A line is not a record of this contract. The message is one line and names the fault."""


class _AnyHeader(msgspec.Struct, tag_field="type", tag="header"):
    """What a header of every version has."""

    schema_version: int


_version_decoder = msgspec.json.Decoder(_AnyHeader)


def encode(record: Record) -> bytes:
    """One record as one line of JSON, without the line end."""
    return _encoder.encode(record)


def append_line(record: Record, lines: bytearray) -> None:
    """The same at the end of `lines`, with its line end."""
    _encoder.encode_into(record, lines, -1)
    lines += b"\n"


def decode(line: bytes | str) -> Record:
    """The record in one line of JSON.

    Raises RecordError for anything else, and for a header of another schema version.
    """
    try:
        record = _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        _refuse_other_version(line)
        raise RecordError(f"not a Glasspool record: {one_line(error)}") from None
    if isinstance(record, Header):
        _refuse_other_version(line)
    return record


def one_line(error: Exception) -> str:
    """An error's text, short and on one line: it may quote the input."""
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _refuse_other_version(line: bytes | str) -> None:
    """A header of another version may lack any field but its version."""
    try:
        version = _version_decoder.decode(line).schema_version
    except (msgspec.MsgspecError, RecursionError):
        return
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"schema version {version} is not supported, this Glasspool reads version "
            f"{SCHEMA_VERSION}: read it with the Glasspool that wrote it"
        )
