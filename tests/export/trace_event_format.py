"""A strict reader of the JSON Trace Event format, for what glasspool exports.

It holds the rules of the format's description (Google's "Trace Event Format"): required fields by phase,
durations, nesting of slices on a thread, begin and end of nestable async events in the reverse order,
flows that begin before they end and lie in slices.
"""

from collections import defaultdict

REQUIRED = {
    "X": {"pid", "tid", "name", "ts", "dur"},
    "C": {"pid", "name", "ts", "args"},
    "i": {"pid", "tid", "name", "ts", "s"},
    "b": {"pid", "tid", "name", "ts", "id", "cat"},
    "e": {"pid", "tid", "name", "ts", "id", "cat"},
    "s": {"pid", "tid", "name", "ts", "id", "cat"},
    "f": {"pid", "tid", "name", "ts", "id", "cat", "bp"},
    "M": {"pid", "name", "args"},
}
METADATA = {"process_name", "thread_name"}
CLOSE = 0.002
"""Microseconds by which rounding may move a border."""


def check_document(document: dict) -> None:
    """Raises AssertionError where the document is not in the format."""
    assert document.keys() <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    events = document["traceEvents"]
    for event in events:
        _check_fields(event)
    _check_slices(events)
    _check_async(events)
    _check_flows(events)


def _check_fields(event: dict) -> None:
    phase = event["ph"]
    assert phase in REQUIRED, phase
    assert REQUIRED[phase] <= event.keys(), event
    assert isinstance(event["pid"], int)
    assert isinstance(event.get("tid", 0), int)
    assert isinstance(event["name"], str)
    assert event.get("ts", 0) >= 0
    if phase == "X":
        assert event["dur"] >= 0, event
    if phase == "C":
        assert event["args"]
        assert all(type(value) in (int, float) for value in event["args"].values()), event
    if phase == "i":
        assert event["s"] in ("g", "p", "t")
    if phase == "M":
        assert event["name"] in METADATA
        assert isinstance(event["args"]["name"], str)
    if phase == "f":
        assert event["bp"] == "e"


def _threads(events: list[dict]) -> dict[tuple[int, int], list[tuple[float, float]]]:
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return threads


def _check_slices(events: list[dict]) -> None:
    """Two slices of a thread lie apart, or one in the other."""
    for slices in _threads(events).values():
        open_until: list[float] = []
        for since, until in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_until and open_until[-1] <= since + CLOSE:
                open_until.pop()
            assert not open_until or until <= open_until[-1] + CLOSE, "slices overlap"
            open_until.append(until)


def _check_async(events: list[dict]) -> None:
    tracks = defaultdict(list)
    last: dict[tuple, float] = {}
    for event in events:
        if event["ph"] not in "be":
            continue
        key = (event["pid"], event["cat"], event["id"])
        assert event["ts"] >= last.get(key, 0.0), "an async track runs back in time"
        last[key] = event["ts"]
        if event["ph"] == "b":
            tracks[key].append(event["name"])
        else:
            assert tracks[key], "an end without a begin"
            assert tracks[key].pop() == event["name"], "ends in another order than it began"
    assert not any(tracks.values()), "something is left open"


def _check_flows(events: list[dict]) -> None:
    threads = _threads(events)
    started: dict[tuple, float] = {}
    for event in events:
        if event["ph"] in "sf":
            key = (event["cat"], event["id"])
            slices = threads[event["pid"], event["tid"]]
            at = event["ts"]
            assert any(s - CLOSE <= at <= e + CLOSE for s, e in slices), "an arrow from nowhere"
            if event["ph"] == "s":
                assert key not in started
                started[key] = at
            else:
                assert started[key] <= at, "an arrow back in time"
