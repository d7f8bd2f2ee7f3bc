"""Who watches the stream, and what reached them: figures for /metrics, owned by the event loop."""

from engine.events.histograms import Histogram
from engine.service.event_log import Entry, EventLog

_LAG_BOUNDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25]


class Viewer:
    """One client: it has seen every record up to `cursor`."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor


class Viewers:
    """Those that are connected now, and counts since the start. `lag` is in seconds."""

    def __init__(self) -> None:
        self.connected: set[Viewer] = set()
        self.sent = 0
        self.dropped = 0
        self.resyncs = 0
        self.lag = Histogram(_LAG_BOUNDS, [0] * (len(_LAG_BOUNDS) + 1))

    def longest_queue(self, event_log: EventLog) -> int:
        """Records that the slowest viewer has yet to get."""
        last = event_log.last
        return max((last - viewer.cursor for viewer in tuple(self.connected)), default=0)

    def note_sent(self, entries: list[Entry], now: float) -> None:
        """`now` is on the clock of the records' times."""
        self.sent += len(entries)
        for entry in entries:
            took = entry.record.durations
            ended = entry.record.time + took.schedule + took.model + took.sample
            self.lag.observe(max(0.0, now - ended))
