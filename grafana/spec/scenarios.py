"""What must page, make a ticket or stay silent: runs of one engine, minute by minute.

`promtool` plays them against the rules, with its own clock. The times at which alerts begin and end
belong to the default parameters.
"""

from dataclasses import dataclass

from grafana.spec.metrics import series

INTERVAL = "30s"
"""Between samples, and between evaluations."""
SAMPLES = 2
"""A minute."""
LABELS = {"job": "glasspool", "instance": "engine:8000"}
UP = 'up{job="glasspool", instance="engine:8000"}'
TOKENS = 6000
"""A minute, of a healthy engine."""

DOWN = "Prometheus gets no metrics from this engine, or knows of no engine at all."
Phases = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Firing:
    """`alert` is silent at `begins` - 1 and fires at `begins`; it is over at `over`, in minutes.

    `description` is what somebody reads at `begins`. `absent`: there is no engine to name.
    """

    alert: str
    begins: int
    over: int | None
    description: str
    absent: bool = False


@dataclass(frozen=True)
class Scenario:
    """`series` in promtool's notation. An alert that `firing` does not name never fires."""

    name: str
    minutes: int
    series: dict[str, str]
    firing: tuple[Firing, ...] = ()


def scenarios() -> list[Scenario]:
    return [*_silent(), *_waste(), *_pool_and_steps(), *_stream(), *_down()]


def _silent() -> list[Scenario]:
    return [
        Scenario(
            "one preemption",
            60,
            _work(((60, TOKENS),), ((30, 0), (0.5, 1000), (29, 0)), ((30, 0), (0.5, 2), (29, 0))),
        ),
        Scenario(
            "a burst of 30 s",
            90,
            _work(
                ((30, TOKENS), (0.5, 0.2 * TOKENS), (59, TOKENS)),
                ((30, 0), (0.5, 0.8 * TOKENS), (59, 0)),
                ((30, 0), (0.5, 40), (59, 0)),
            ),
        ),
        Scenario(
            # Half of the work is wasted, but it is a preemption every 20 minutes.
            "a nearly idle engine",
            260,
            _work(*(((0.5, more), (19.5, 0)) * 13 for more in (200, 200, 2))),
        ),
        Scenario(
            "a restart",
            62,
            _restarted(_work(((30, TOKENS),), ((30, 60),), ((30, 0.2),)))
            | {_name("up"): _gauge((30, 1), (0.5, 0), (32, 1))},
        ),
    ]


def _waste() -> list[Scenario]:
    page, ticket = "PreemptionThrash", "PreemptionBudgetBurn"
    return [
        Scenario(
            "half of the work is wasted, for half an hour after a quiet one",
            120,
            _work(
                ((30, TOKENS), (30, TOKENS / 2), (60, TOKENS)),
                ((30, 0), (30, TOKENS / 2), (60, 0)),
                ((30, 0), (30, 6), (60, 0)),
            ),
            (
                Firing(
                    page,
                    38,
                    69,
                    "50% of the tokens computed in the last 5m had been computed before "
                    "(13.33% over 30m), after 48 preemptions in 30m.",
                ),
                Firing(
                    ticket,
                    49,
                    None,
                    "31.67% of the tokens computed in the last 30m had been computed before "
                    "(19.39% over 6h), after 114 preemptions in 6h.",
                ),
            ),
        ),
        Scenario(
            "4 % of the work is wasted, all the time",
            270,
            _work(
                ((30, TOKENS), (240, 0.96 * TOKENS)),
                ((30, 0), (240, 0.04 * TOKENS)),
                ((30, 0), (240, 0.6)),
            ),
            (
                Firing(
                    ticket,
                    79,
                    None,
                    "4% of the tokens computed in the last 30m had been computed before "
                    "(2.481% over 6h), after 29 preemptions in 6h.",
                ),
            ),
        ),
        Scenario(
            "requests that are preempted ten times each",
            40,
            {
                _name("request_preemptions_bucket", le="5"): _counter((40, 1)),
                _name("request_preemptions_bucket", le="10"): _counter((40, 4)),
                _name("request_preemptions_bucket", le="+Inf"): _counter((40, 4)),
                _name("request_preemptions_count"): _counter((40, 4)),
            },
            (
                Firing(
                    "RequestThrashing",
                    16,
                    None,
                    "One request in a hundred was preempted 9.9 times or more, of 60 that finished "
                    "in 15m.",
                ),
            ),
        ),
    ]


def _pool_and_steps() -> list[Scenario]:
    full = {
        _name("blocks", state="free"): _gauge((10, 60), (20, 2), (30, 60)),
        _name("blocks", state="cached"): _gauge((60, 0)),
        _name("blocks", state="active"): _gauge((10, 36), (20, 94), (30, 36)),
        _name("blocks_capacity"): _gauge((60, 96)),
    }
    return [
        Scenario(
            "the pool is exhausted, and requests wait",
            60,
            full
            | {
                _name("requests", state="waiting"): _gauge((10, 0), (20, 3), (30, 0)),
                _name("requests", state="preempted"): _gauge((10, 0), (20, 1), (30, 0)),
                _name("steps_total"): _counter((60, 600)),
            },
            (
                Firing(
                    "PoolExhausted",
                    15,
                    36,
                    "2.083% of the pool can be handed out, while 4 requests wait or are preempted.",
                ),
            ),
        ),
        Scenario(
            "the pool is full, and nobody waits",
            60,
            full
            | {
                _name("requests", state="running"): _gauge((60, 4)),
                _name("requests", state="waiting"): _gauge((60, 0)),
                _name("steps_total"): _counter((60, 600)),
            },
        ),
        Scenario(
            "an engine with work makes no steps, until it does again",
            40,
            {
                _name("requests", state="running"): _gauge((40, 4)),
                _name("steps_total"): _counter((10, 600), (10, 0), (20, 600)),
            },
            (
                Firing(
                    "EngineStalled",
                    12,
                    23,
                    "0 steps a second over 1m, with 4 unfinished requests.",
                ),
            ),
        ),
        Scenario(
            "an idle engine makes no steps",
            40,
            {
                _name("requests", state="running"): _gauge((10, 4), (30, 0)),
                _name("steps_total"): _counter((10, 600), (30, 0)),
            },
        ),
    ]


def _stream() -> list[Scenario]:
    sent = {_name("stream_records_sent_total"): _counter((60, 1000))}
    dropped = _name("stream_records_dropped_total", reason="slow_viewer")
    return [
        Scenario(
            "a viewer that is too slow",
            60,
            sent | {dropped: _counter((10, 0), (20, 50), (30, 0))},
            (
                Firing(
                    "EventStreamLossy",
                    23,
                    49,
                    "4.762% of the event records of the last 10m were left out for slow viewers or "
                    "a full recorder.",
                ),
            ),
        ),
        Scenario(
            "a viewer that stumbled once",
            60,
            sent | {dropped: _counter((10, 0), (0.5, 200), (49, 0))},
        ),
    ]


def _down() -> list[Scenario]:
    return [
        Scenario(
            "an engine that can't be scraped",
            20,
            {_name("up"): _gauge((10, 1), (10, 0))},
            (Firing("EngineDown", 11, None, DOWN),),
        ),
        Scenario(
            "no engine at all",
            20,
            {_name("up"): _gauge((10, 1)) + " stale"},
            (Firing("EngineDown", 11, None, DOWN, absent=True),),
        ),
    ]


def _work(computed: Phases, recomputed: Phases, preemptions: Phases) -> dict[str, str]:
    return {
        _name("computed_tokens_total", work="decode"): _counter(*computed),
        _name("computed_tokens_total", work="recompute"): _counter(*recomputed),
        _name("preemptions_total", reason="no_free_block"): _counter(*preemptions),
    }


def _restarted(run: dict[str, str]) -> dict[str, str]:
    """The same again after half a minute, from 0."""
    return {name: f"{values} _x1 {values}" for name, values in run.items()}


def _counter(*phases: tuple[float, float]) -> str:
    """From 0, for so many minutes so much more a minute, one phase after another."""
    value, parts = 0.0, ["0"]
    for minutes, per_minute in phases:
        samples, step = round(minutes * SAMPLES), per_minute / SAMPLES
        parts.append(f"{value + step:g}+{step:g}x{samples - 1}")
        value += step * samples
    return " ".join(parts)


def _gauge(*phases: tuple[float, float]) -> str:
    """For so many minutes this value, one after another."""
    return " ".join(f"{value:g}x{round(minutes * SAMPLES) - 1}" for minutes, value in phases)


def _name(name: str, **labels: str) -> str:
    return UP if name == "up" else series(name, **LABELS, **labels)
