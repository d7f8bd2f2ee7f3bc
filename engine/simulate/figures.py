"""What came of a run, simulated or recorded. The same meanings as in events/stats.py."""

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

from engine.events.records import RequestFinished, RequestRejected, Step, Totals

_GRAIN = 1e-5
"""Seconds to which times between tokens are rounded before they are counted."""

_ENDS = {RequestFinished, RequestRejected}


class Spread(msgspec.Struct, frozen=True):
    """Percentiles by nearest rank, in seconds."""

    p50: float
    p95: float


class Figures(msgspec.Struct, frozen=True):
    """One run. seconds: from the start to the end of the last step. None: there was nothing to measure.

    utilisation: active blocks / pool at the ends of records, each counted as long as it lasted, and
    the most. recompute_share: of all computed tokens. prefix_hit_rate: of the prompt tokens looked up.
    output_tokens: of requests that ended. inter_token includes time spent preempted.
    """

    seconds: float
    steps: int
    finished: int
    refused: int
    utilisation_mean: float
    utilisation_peak: float
    preemptions: int
    recompute_share: float | None
    prefix_hit_rate: float | None
    output_tokens: int
    output_tokens_per_second: float | None
    computed_tokens_per_second: float | None
    first_token_seconds: Spread | None
    inter_token_seconds: Spread | None
    request_seconds: Spread | None


class FiguresFold:
    """Takes each record of a run that starts at `start` seconds, having counted `before`."""

    def __init__(self, start: float, before: Totals | None = None) -> None:
        self._start = self._time = self._end = start
        self._before = Totals() if before is None else before
        self._level = self._area = self._peak = 0.0
        self._first: list[float] = []
        self._whole: list[float] = []
        self._between: Counter[int] = Counter()
        self._output_tokens = self._finished = self._refused = 0

    def add(self, record: Step, utilisation: float, waits: Iterable[tuple[float, int]]) -> None:
        """`utilisation` after the record, and the tally's `waits` of it."""
        self._area += self._level * (record.time - self._time)
        self._time = record.time
        self._level = utilisation
        self._peak = max(self._peak, utilisation)
        spent = record.durations
        self._end = record.time + spent.schedule + spent.model + spent.sample
        for seconds, times in waits:
            self._between[round(seconds / _GRAIN)] += times
        if _ENDS.isdisjoint(map(type, record.events)):
            return
        for event in record.events:
            kind = type(event)
            if kind is RequestFinished:
                self._request(event)
            elif kind is RequestRejected:
                self._refused += 1

    def result(self, totals: Totals, malformed: int = 0) -> Figures:
        """`totals` after the last record; `malformed`: refused requests of which no event tells."""
        seconds = self._end - self._start
        area = self._area + self._level * (self._end - self._time)

        def counted(name: str) -> int:
            return getattr(totals, name) - getattr(self._before, name)

        recomputed = counted("recompute_tokens")
        computed = counted("prefill_tokens") + counted("decode_tokens") + recomputed
        queried = counted("prefix_queried_tokens")
        return Figures(
            seconds=seconds,
            steps=counted("steps"),
            finished=self._finished,
            refused=self._refused + malformed,
            utilisation_mean=area / seconds if seconds else 0.0,
            utilisation_peak=self._peak,
            preemptions=sum(totals.preemptions.values()) - sum(self._before.preemptions.values()),
            recompute_share=recomputed / computed if computed else None,
            prefix_hit_rate=counted("prefix_hit_tokens") / queried if queried else None,
            output_tokens=self._output_tokens,
            output_tokens_per_second=self._output_tokens / seconds if seconds else None,
            computed_tokens_per_second=computed / seconds if seconds else None,
            first_token_seconds=_spread(Counter(self._first)),
            inter_token_seconds=_spread(self._between, _GRAIN),
            request_seconds=_spread(Counter(self._whole)),
        )

    def _request(self, event: RequestFinished) -> None:
        self._finished += 1
        self._output_tokens += event.output_tokens
        self._whole.append(event.duration_seconds)
        if event.first_token_seconds is not None:
            self._first.append(event.first_token_seconds)


def _spread(counts: Counter, unit: float = 1.0) -> Spread | None:
    total = counts.total()
    if not total:
        return None
    ranks, found, passed = [math.ceil(share * total) for share in (0.5, 0.95)], [], 0
    for value in sorted(counts):
        passed += counts[value]
        while len(found) < len(ranks) and passed >= ranks[len(found)]:
            found.append(value * unit)
    return Spread(*found)
