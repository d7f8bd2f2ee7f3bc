"""The JSON Trace Event format: its events, and the file around them. Times are microseconds."""

import gzip
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from engine.events.records import Header

ENGINE, REQUESTS = 1, 2
"""Process ids."""
STEPS, COPIES, PREEMPTIONS = 1, 2, 3
"""Thread ids within the engine."""

Event = dict[str, Any]


class TraceEvents:
    """Events of the format, in the order in which they are put."""

    def __init__(self) -> None:
        self._out: list[Event] = []

    def take(self) -> list[Event]:
        """What was put since the last time."""
        out, self._out = self._out, []
        return out

    def slice(self, thread: int, name: str, at: float, long: float, args: Event) -> None:
        """Something of the engine that lasts."""
        self._out.append({"ph": "X", "pid": ENGINE, "tid": thread, "name": name, "cat": "engine",
                          "ts": at, "dur": long, "args": args})  # fmt: skip

    def counter(self, name: str, at: float, values: dict[str, int]) -> None:
        """Values from `at` on."""
        self._out.append({"ph": "C", "pid": ENGINE, "name": name, "ts": at, "args": values})

    def instant(self, thread: int, name: str, at: float, args: Event) -> None:
        """Something of the engine that takes no time."""
        self._out.append({"ph": "i", "s": "t", "pid": ENGINE, "tid": thread, "name": name,
                          "cat": "engine", "ts": at, "args": args})  # fmt: skip

    def flow(self, phase: str, number: int, thread: int, name: str, at: float) -> None:
        """An arrow's start (s) or end (f); each lies in a slice of its thread."""
        event = {"ph": phase, "id": number, "pid": ENGINE, "tid": thread, "name": name,
                 "cat": name, "ts": at}  # fmt: skip
        if phase == "f":
            event["bp"] = "e"
        self._out.append(event)

    def phase(self, mark: str, number: int, name: str, at: float, args: Event) -> None:
        """Begin (b) or end (e) something on the track of a sequence."""
        self._out.append({"ph": mark, "cat": "sequence", "id": number, "pid": REQUESTS, "tid": 1,
                          "name": name, "ts": at, "args": args})  # fmt: skip

    def name(self, kind: str, process: int, thread: int, name: str) -> None:
        """What a process or thread is called; `kind` is process_name or thread_name."""
        self._out.append({"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0,
                          "args": {"name": name}})  # fmt: skip


def open_target(target: Path) -> BinaryIO:
    """The file to write to, compressed where its name ends in .gz."""
    return gzip.open(target, "wb", compresslevel=6) if target.suffix == ".gz" else target.open("wb")


class TraceEventWriter:
    """The JSON object around the events."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self.count = 0
        self._file = file
        self._encoder = msgspec.json.Encoder()
        about = {
            "producer": f"{header.producer.name} {header.producer.version}",
            "engine": header.engine_name,
            "model": header.model,
            "num_blocks": header.num_blocks,
            "block_size": header.block_size,
        }
        file.write(b'{"displayTimeUnit":"ms","otherData":' + self._encoder.encode(about))
        file.write(b',"traceEvents":[')

    def write(self, events: list[Event]) -> None:
        for event in events:
            self._file.write(b",\n" if self.count else b"\n")
            self._file.write(self._encoder.encode(event))
            self.count += 1

    def close(self) -> None:
        self._file.write(b"\n]}\n")
