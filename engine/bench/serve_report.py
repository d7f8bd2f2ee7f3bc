"""The figures of a `bench serve` run: from its requests' records to percentiles and throughput.

Only requests that ended well count in latencies and tokens; the others are counted by why they
failed. Tokens are the server's own count; where an answer came without usage they are unknown, and
so is every figure made of them.
"""

import math
import re
from collections.abc import Sequence

import msgspec

from engine.bench.serve_client import RequestRecord
from engine.bench.serve_load import Load
from engine.bench.serve_settings import ServeBenchSettings

SLOW_LAG_MS = 20
SLOW_CPU_SHARE = 0.9


class Spread(msgspec.Struct):
    """Of `count` values, in milliseconds; all None where there are none."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


class ErrorCount(msgspec.Struct):
    """Requests that failed alike. message: the first one's; others may differ in its numbers."""

    status: int | None
    count: int
    message: str


class ServeFigures(msgspec.Struct):
    """A run, as `--json` writes it: names as in vLLM's `bench serve`, where it has them.

    duration: seconds from the first sending to the last end. Throughputs are per second of it.
    ttft: first content chunk since sending. itl: gaps between content chunks. tpot: first to last
    chunk over the tokens of each choice after its first, a value a request. Where answers were not
    streamed, these three and chunks are None: nobody measured them. e2el: sending to end. sent_late:
    sending after due. client_lag: how late the event loop was, sampled. client_cpu: share of one core.
    """

    streamed: bool
    completed: int
    failed: int
    cut_off: int
    duration: float
    request_throughput: float | None
    output_throughput: float | None
    total_token_throughput: float | None
    total_input_tokens: int | None
    total_output_tokens: int | None
    asked_input_tokens: int
    asked_output_tokens: int
    chunks: int | None
    mean_concurrent_requests: float | None
    max_concurrent_requests: int
    ttft_ms: Spread | None
    itl_ms: Spread | None
    tpot_ms: Spread | None
    e2el_ms: Spread
    sent_late_ms: Spread
    client_lag_ms: Spread
    client_cpu: float | None
    errors: list[ErrorCount]
    notes: list[str]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of at least one ascending value: interpolated linearly between the two nearest ranks."""
    rank = (len(ordered) - 1) * percent / 100
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def spread_ms(seconds: Sequence[float]) -> Spread:
    """Values in seconds to figures in milliseconds."""
    if not seconds:
        return Spread(0)
    ordered = sorted(value * 1000 for value in seconds)
    return Spread(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        p50=percentile(ordered, 50),
        p90=percentile(ordered, 90),
        p99=percentile(ordered, 99),
        max=ordered[-1],
    )


def figures(load: Load, settings: ServeBenchSettings) -> ServeFigures:
    """What a run's records say, and in `notes` what a reader should know of them."""
    records = load.records
    ok = [record for record in records if record.ok]
    duration = _duration(records)
    inputs = _total([record.reading.prompt_tokens for record in ok])
    outputs = _total([record.reading.output_tokens for record in ok])
    total = None if inputs is None or outputs is None else inputs + outputs
    streamed = settings.streamed
    result = ServeFigures(
        streamed=streamed,
        completed=len(ok),
        failed=sum(record.failure is not None for record in records),
        cut_off=sum(record.cut_off for record in records),
        duration=duration,
        request_throughput=_rate(len(ok), duration),
        output_throughput=_rate(outputs, duration),
        total_token_throughput=_rate(total, duration),
        total_input_tokens=inputs,
        total_output_tokens=outputs,
        asked_input_tokens=sum(record.asked_prompt_tokens for record in ok),
        asked_output_tokens=sum(record.asked_output_tokens for record in ok),
        chunks=sum(r.reading.chunks for r in ok) if streamed else None,
        mean_concurrent_requests=_rate(math.fsum(r.ended - r.sent for r in records), duration),
        max_concurrent_requests=_most_at_once(records),
        ttft_ms=_first_tokens(ok) if streamed else None,
        itl_ms=spread_ms([gap for r in ok for gap in r.reading.gaps]) if streamed else None,
        tpot_ms=_token_times(ok) if streamed else None,
        e2el_ms=spread_ms([record.ended - record.sent for record in ok]),
        sent_late_ms=spread_ms([max(0.0, record.sent - record.due) for record in records]),
        client_lag_ms=spread_ms(load.lags),
        client_cpu=_rate(load.cpu_seconds, duration),
        errors=_errors(records),
        notes=[],
    )
    result.notes = _notes(result, load, ok, settings)
    return result


def _duration(records: Sequence[RequestRecord]) -> float:
    if not records:
        return 0.0
    return max(record.ended for record in records) - min(record.sent for record in records)


def _rate(amount: float | None, duration: float) -> float | None:
    return amount / duration if amount is not None and duration > 0 else None


def _total(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(counts)


def _first_tokens(ok: Sequence[RequestRecord]) -> Spread:
    return spread_ms([r.reading.first - r.sent for r in ok if r.reading.first is not None])


def _token_times(ok: Sequence[RequestRecord]) -> Spread:
    return spread_ms([value for r in ok if (value := _per_token(r)) is not None])


def _per_token(record: RequestRecord) -> float | None:
    reading = record.reading
    if reading.first is None or reading.output_tokens is None:
        return None
    # Choices of one request run beside each other.
    each = reading.output_tokens / reading.n
    return (reading.last - reading.first) / (each - 1) if each > 1 else None


def _most_at_once(records: Sequence[RequestRecord]) -> int:
    changes = sorted(
        [(record.ended, -1) for record in records] + [(record.sent, 1) for record in records]
    )
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def _errors(records: Sequence[RequestRecord]) -> list[ErrorCount]:
    """Failures of one status whose messages differ in numbers and ids only are one kind."""
    kinds: dict[tuple[int | None, str], ErrorCount] = {}
    for record in records:
        if record.failure is not None:
            status, message = record.failure.status, record.failure.message
            kind = kinds.setdefault(
                (status, re.sub(r"\w*\d\w*", "0", message)), ErrorCount(status, 0, message)
            )
            kind.count += 1
    return sorted(kinds.values(), key=lambda kind: -kind.count)


def _notes(
    result: ServeFigures, load: Load, ok: Sequence[RequestRecord], settings: ServeBenchSettings
) -> list[str]:
    notes = []
    if load.gone is not None:
        notes.append(f"the server stopped answering ({load.gone}): the run ended there")
    if load.interrupted:
        notes.append("interrupted: these are the requests that had ended")
    uncounted = sum(record.reading.output_tokens is None for record in ok)
    if uncounted:
        notes.append(f"{uncounted} of {len(ok)} answers came without usage: tokens are unknown")
    silent = sum(record.reading.first is None for record in ok)
    if not result.streamed:
        notes.append(
            "answers came whole, as a beam search is not streamed: the time to the first token and "
            "those between tokens were not measured"
        )
    elif silent:
        notes.append(f"{silent} of {len(ok)} answers had no text: they have no TTFT")
    outputs = result.total_output_tokens
    if outputs is not None and outputs < result.asked_output_tokens:
        remedy = "" if settings.ignore_eos else ": pass --ignore-eos where the server takes it"
        notes.append(
            f"answers ended early, {outputs:,} of {result.asked_output_tokens:,} tokens{remedy}"
        )
    if settings.max_concurrency and not settings.closed_loop and result.sent_late_ms.count:
        notes.append(
            "sent late includes waiting for one of the "
            f"{settings.max_concurrency:,} places of --max-concurrency"
        )
    lag, cpu = result.client_lag_ms.p99 or 0, result.client_cpu or 0
    if ok and (lag > SLOW_LAG_MS or cpu > SLOW_CPU_SHARE):
        notes.append(
            f"this client was busy ({cpu:.0%} of a core, its loop {lag:.0f} ms late at p99): "
            "latencies are partly its own; drive less from one process"
        )
    return notes
