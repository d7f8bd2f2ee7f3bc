"""Public traces of what services were asked, read as requests, one at a time.

  Azure LLM inference (2023, 2024)  CSV: TIMESTAMP, ContextTokens, GeneratedTokens
  BurstGPT                          CSV: Timestamp (seconds), Request tokens, Response tokens, …
  Mooncake                          JSON lines: timestamp (ms), input_length, output_length, hash_ids
                                    (names of the prompt's blocks of 512 tokens)

The first line tells which one it is. The first request arrives at second 0. Requests to which the
trace has no output token (BurstGPT keeps failed ones) are left out: nobody can ask for 0 tokens.
"""

import csv
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import msgspec

from engine.workloads.request import MOST_TOKENS, WorkloadError, WorkloadRequest

MOONCAKE_BLOCK_TOKENS = 512
MOST_SECONDS = 1e12
"""On a file's own clock, before or after its zero: a difference of two times stays exact to 1 ms."""
_SHOWN = 60


def read_trace(path: Path) -> Iterator[WorkloadRequest]:
    """The requests of a trace, in the file's order, read while they are asked for.

    Raises WorkloadError, when the place is reached, for a file that cannot be read, is none of the
    three, has a line that is not as its format says, or goes back in time.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _from_zero(path, _rows(path, file))
    except OSError as error:
        raise WorkloadError(
            f"{path}: {error.strerror}; name a CSV or JSON-lines file that can be read"
        ) from None
    except UnicodeDecodeError:
        what = "it is not UTF-8: unpack the file, or name a CSV or JSON-lines file"
        raise _error(path, _first_undecodable(path), what) from None


def _first_undecodable(path: Path) -> int:
    """The line that is not UTF-8. The reader met it in a chunk of many lines."""
    with path.open("rb") as file:
        return next(number for number, line in enumerate(file, 1) if not _is_utf8(line))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


# A row: the file's line number, seconds on the file's own clock, the request without its arrival.
_Row = tuple[int, float, WorkloadRequest]


def _from_zero(path: Path, rows: Iterator[_Row]) -> Iterator[WorkloadRequest]:
    start = latest = None
    for line, seconds, request in rows:
        start = seconds if start is None else start
        if latest is not None and seconds < latest:
            what = (
                f"its time is {latest - seconds:g} s before the line above: sort the file by time"
            )
            raise _error(path, line, what)
        latest = seconds
        if request.output_tokens > 0:
            yield msgspec.structs.replace(request, arrival=seconds - start)
    if latest is None:
        raise WorkloadError(f"{path} has no requests: it ends after its header; name another file")


def _rows(path: Path, file: TextIO) -> Iterator[_Row]:
    first = file.readline()
    if first.startswith("{"):
        file.seek(0)
        yield from _mooncake(path, file)
        return
    columns = [name.strip().strip('"') for name in first.split(",")]
    for names, seconds, example in _CSV_FORMATS:
        if set(names) <= set(columns):
            yield from _csv(path, file, columns, names, seconds, example)
            return
    raise _error(
        path,
        1,
        f"{_shown(first.strip())} is no header of a known trace: Azure has "
        "TIMESTAMP,ContextTokens,GeneratedTokens; BurstGPT has Timestamp,…,Request tokens,"
        "Response tokens; Mooncake is JSON lines",
    )


def _csv(
    path: Path,
    file: TextIO,
    columns: list[str],
    names: tuple[str, str, str],
    seconds: Callable[[str], float],
    example: str,
) -> Iterator[_Row]:
    reader = csv.reader(file)
    try:
        for row in reader:
            line = reader.line_num + 1  # the header was read before
            if not row:
                continue
            if len(row) != len(columns):
                what = f"{len(row)} values under {len(columns)} columns: mend or delete the line"
                raise _error(path, line, what)
            time, prompt, output = (row[columns.index(name)] for name in names)
            try:
                at = seconds(time)
            except ValueError:
                what = f"{names[0]} is {_shown(time)}, no time: write it like {example}"
                raise _error(path, line, what) from None
            request = WorkloadRequest(
                0.0,
                _tokens(path, line, names[1], prompt, least=1),
                _tokens(path, line, names[2], output, least=0),
            )
            yield line, at, request
    except csv.Error as error:
        what = f"it cannot be read as CSV ({error}): mend or delete the line"
        raise _error(path, reader.line_num + 1, what) from None


def _tokens(path: Path, line: int, name: str, text: str, least: int) -> int:
    # int() alone would take 1_000, and as many digits as there are; \s is more than it strips.
    tokens = int(text) if re.fullmatch(r"[ \t]*\+?[0-9]{1,18}[ \t]*", text) else -1
    if not least <= tokens <= MOST_TOKENS:
        what = f"{name} is {_shown(text)}; it is a whole number from {least} to {MOST_TOKENS:,}"
        raise _error(path, line, what)
    return tokens


def _clock(text: str) -> float:
    time = datetime.fromisoformat(text)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not abs(seconds) <= MOST_SECONDS:
        raise ValueError(text)
    return seconds


_CSV_FORMATS = (
    (("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _clock, "2023-11-16 18:15:46.68"),
    (("Timestamp", "Request tokens", "Response tokens"), _seconds, "45.5 (seconds)"),
)


class _MooncakeLine(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


def _mooncake(path: Path, file: TextIO) -> Iterator[_Row]:
    decoder = msgspec.json.Decoder(_MooncakeLine)
    for number, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except msgspec.MsgspecError as error:
            what = f"{_shown(text.strip())} is no request of Mooncake ({error}): mend or delete the line"
            raise _error(path, number, what) from None
        if not abs(line.timestamp) <= 1000 * MOST_SECONDS:
            what = f"timestamp is {line.timestamp:g}, no time: it is in milliseconds"
            raise _error(path, number, what)
        request = WorkloadRequest(
            0.0,
            _tokens(path, number, "input_length", str(line.input_length), least=1),
            _tokens(path, number, "output_length", str(line.output_length), least=0),
            line.hash_ids,
            MOONCAKE_BLOCK_TOKENS,
        )
        yield number, line.timestamp / 1000, request


def _shown(text: str) -> str:
    """A value as an error tells it: on one line, of bounded length."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _error(path: Path, line: int, what: str) -> WorkloadError:
    return WorkloadError(f"{path}, line {line}: {what}")
