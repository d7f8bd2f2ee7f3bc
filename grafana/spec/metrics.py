"""The metrics of an engine's /metrics that are used here, and how a query selects them."""

PREFIX = "glasspool_"

GAUGES = frozenset(
    {
        "blocks",
        "blocks_capacity",
        "blocks_shared",
        "block_references",
        "slots_allocated",
        "slots_filled",
        "requests",
        "last_step_timestamp_seconds",
        "stream_clients",
        "stream_queue_records",
        "build_info",
    }
)
COUNTERS = frozenset(
    {
        "blocks_allocated_total",
        "blocks_released_total",
        "blocks_evicted_total",
        "cow_copies_total",
        "allocation_failures_total",
        "preemptions_total",
        "computed_tokens_total",
        "requests_scheduled_total",
        "requests_finished_total",
        "prefix_cache_queried_tokens_total",
        "prefix_cache_hit_tokens_total",
        "steps_total",
        "stream_records_sent_total",
        "stream_records_dropped_total",
        "stream_resyncs_total",
    }
)
HISTOGRAMS = frozenset(
    {
        "request_preemptions",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "request_duration_seconds",
        "queue_duration_seconds",
        "step_duration_seconds",
        "stream_lag_seconds",
    }
)
SERIES = (
    GAUGES | COUNTERS | {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "count")}
)

CHOSEN = 'job=~"$job", instance=~"$instance"'
"""The engines that the reader of a dashboard has chosen."""


def series(name: str, **labels: str | tuple[str, ...]) -> str:
    """All series of a metric; a tuple: any of these values. KeyError: no engine exports the name."""
    return _selector(name, _matchers(labels))


def chosen(name: str, **labels: str | tuple[str, ...]) -> str:
    """The series of the engines that the reader of a dashboard has chosen."""
    return _selector(name, [CHOSEN, *_matchers(labels)])


def rate(name: str, **labels: str | tuple[str, ...]) -> str:
    """Growth a second of a counter, over a window that fits the panel's resolution."""
    return f"rate({chosen(name, **labels)}[$__rate_interval])"


def _selector(name: str, matchers: list[str]) -> str:
    if name not in SERIES:
        raise KeyError(name)
    return f"{PREFIX}{name}{{{', '.join(matchers)}}}" if matchers else PREFIX + name


def _matchers(labels: dict[str, str | tuple[str, ...]]) -> list[str]:
    return [
        f'{label}="{value}"' if isinstance(value, str) else f'{label}=~"{_any(value)}"'
        for label, value in labels.items()
    ]


def _any(values: tuple[str, ...]) -> str:
    return "|".join(values)
