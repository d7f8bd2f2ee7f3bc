"""A real Prometheus and Alertmanager watch a real engine that thrashes, recovers and goes away.

One run, a minute long, with windows of seconds; the tests look at what was seen in it.
"""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from engine.events.records import Totals
from engine.events.stats import TraceStats
from engine.monitor import Monitor, MonitorSettings
from engine.service.ports import free_port
from grafana.dashboard_files import dashboard_files
from grafana.provisioning_files import alert_rules
from grafana.spec.metrics import PREFIX, SERIES
from grafana.spec.parameters import Delivery, Parameters, Timing, Windows
from grafana.yaml_text import yaml_text
from tests.conftest import needs
from tests.grafana.prometheus import Prometheus, grafana_condition
from tests.grafana.queries import filled, shown
from tests.grafana.thrash import Thrash
from tests.grafana.viewer import Viewer
from tests.grafana.webhook import Webhook
from tests.servers import EngineServer, wait_until

pytestmark = [needs("prometheus"), needs("prometheus-alertmanager")]

ALERT = "PreemptionThrash"
KEY = "a-key-of-the-test"
SHORT = Parameters(
    windows=Windows("6s", "12s", "15s", "10s", "5s", "10s"),
    timings={name: Timing("2s", "2s") for name in Parameters().timings}
    | {"EngineDown": Timing("2s")},
    delivery=Delivery("0s", "1s"),
    scrape_interval="1s",
    evaluation_interval="1s",
)


@dataclass
class Moment:
    """At one time: for which engines each rule holds, by Grafana's file and by Prometheus' own, and
    the state, pending or firing, in which Prometheus has those that are not inactive.
    """

    grafana: dict[str, set]
    prometheus: dict[str, set]
    states: dict[str, str]


@dataclass
class Run:
    """What was seen of the run."""

    states: list[str] = field(default_factory=list)
    firing: dict = field(default_factory=dict)
    resolved: dict = field(default_factory=dict)
    panels: dict[str, list[dict]] = field(default_factory=dict)
    moments: dict[str, Moment] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    layers: list[tuple[float, float]] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    trace = tmp_path_factory.mktemp("run") / "run.jsonl.zst"
    options = ["--model", "none", "--num-gpu-blocks-override", "24", "--record", str(trace)]
    engine = EngineServer(*options, GLASSPOOL_API_KEY=KEY)
    run = Run()
    with engine, Webhook() as webhook:
        settings = MonitorSettings((engine.url,), free_port(), free_port(), KEY, None, webhook.url)
        with Monitor(settings, SHORT) as monitor:
            prometheus = Prometheus(monitor.prometheus_url)
            _watch(run, prometheus, webhook, engine)
    run.totals = _stats(trace)
    return run


def _watch(run: Run, prometheus: Prometheus, webhook: Webhook, engine: EngineServer) -> None:
    def reached(state: str) -> bool:
        now = prometheus.states().get(ALERT, "unknown")
        if not run.states or run.states[-1] != now:
            run.states.append(now)
        return now == state

    wait_until(lambda: reached("inactive"), 20, "the rules are loaded")
    with Viewer(engine.events_url, KEY), Thrash(engine.url, KEY) as load:
        wait_until(lambda: reached("pending"), 40, "work is wasted")
        wait_until(lambda: reached("firing"), 20, "the waste goes on")
        wait_until(lambda: webhook.told(ALERT, "firing"), 20, "somebody is paged")
        run.panels = _panels(prometheus)
        run.layers.append(_layers(prometheus))
        run.moments["thrashing"] = _moment(prometheus)
    run.refused = load.refused
    wait_until(lambda: reached("inactive"), 60, "the waste has left the windows")
    wait_until(lambda: webhook.told(ALERT, "resolved"), 20, "it is said to be over")
    wait_until(lambda: not prometheus.query("ALERTS", _settled()), 60, "all is quiet")
    run.moments["quiet"] = _moment(prometheus)
    run.firing, run.resolved = webhook.told(ALERT, "firing"), webhook.told(ALERT, "resolved")
    run.exported = {
        series["metric"]["__name__"] for series in prometheus.query(f'{{__name__=~"{PREFIX}.*"}}')
    }
    run.counters = _counters(prometheus)
    engine.stop()
    wait_until(lambda: prometheus.states()["EngineDown"] == "firing", 20, "the engine is missed")
    run.moments["down"] = _moment(prometheus)


def _panels(prometheus: Prometheus) -> dict[str, list[dict]]:
    """The result of every query of the dashboards, built with the windows of this test."""
    now = time.time()
    return {
        query: prometheus.query(filled(query, "10s"), now)
        for text in dashboard_files(SHORT).values()
        for panel in shown(msgspec.json.decode(text))
        for query in panel.queries
    }


def _layers(prometheus: Prometheus) -> tuple[float, float]:
    """The sum of the layers of the pool's picture, and the pool's size, at one time."""
    (overview,) = [
        text for name, text in dashboard_files(SHORT).items() if name == "glasspool-overview.json"
    ]
    (panel,) = [
        panel
        for panel in shown(msgspec.json.decode(overview))
        if panel.panel["title"] == "Pool composition"
    ]
    now = _settled()
    layers = [prometheus.values(filled(query), now) for query in panel.queries]
    (size,) = prometheus.values("sum(glasspool_blocks_capacity)", now).values()
    return sum(value for layer in layers for value in layer.values()), size


def _settled() -> float:
    """A moment ago: what the rules recorded then is stored by now."""
    return time.time() - 2


def _moment(prometheus: Prometheus) -> Moment:
    rules = msgspec.yaml.decode(yaml_text(alert_rules(SHORT)))["groups"][0]["rules"]
    now = _settled()
    own = prometheus.rules()
    return Moment(
        grafana={rule["title"]: grafana_condition(rule, prometheus, now) for rule in rules},
        prometheus={name: set(prometheus.values(rule["query"], now)) for name, rule in own.items()},
        states={
            one["metric"]["alertname"]: one["metric"]["alertstate"]
            for one in prometheus.query("ALERTS", now)
        },
    )


def _counters(prometheus: Prometheus) -> dict[str, float]:
    """The engine's counters, without `glasspool_`; a label's value follows its name."""
    names = f'{{__name__=~"{PREFIX}.*_(total|count|sum)"}}'
    return {
        "|".join(
            [
                series["metric"]["__name__"].removeprefix(PREFIX),
                *(
                    value
                    for label, value in series["metric"].items()
                    if label not in ("__name__", "job", "instance")
                ),
            ]
        ): float(series["value"][1])
        for series in prometheus.query(names)
    }


def _stats(path: Path) -> Totals:
    """The counters that `glasspool stats --json` gives of a recording."""
    command = [sys.executable, "-m", "engine.cli", "stats", str(path), "--json"]
    told = subprocess.run(command, capture_output=True, check=True).stdout
    stats = msgspec.json.decode(told, type=TraceStats)
    assert stats.missing is None
    return stats.totals


def test_a_thrashing_engine_pages_and_a_recovered_one_is_silent(run):
    assert run.states[-4:] == ["inactive", "pending", "firing", "inactive"]
    assert run.refused == []


def test_the_page_reaches_a_webhook_and_says_what_is_wasted(run):
    assert run.firing["receiver"] == "page"
    assert run.firing["labels"]["severity"] == "page"
    assert run.firing["labels"]["job"] == "glasspool"
    texts = run.firing["annotations"]
    assert run.firing["labels"]["instance"] in texts["summary"]
    assert "% of the tokens computed in the last 6s" in texts["description"]
    assert "% over 12s" in texts["description"]
    assert texts["runbook_url"].endswith("/PreemptionThrash.md")


def test_the_end_is_told_too(run):
    assert run.resolved["fingerprint"] == run.firing["fingerprint"]
    assert run.resolved["endsAt"] > run.resolved["startsAt"]


def test_every_query_of_the_dashboards_returns_numbers(run):
    assert len(run.panels) > 50
    empty = [
        query
        for query, series in run.panels.items()
        if not any(one["value"][1] != "NaN" for one in series)
    ]
    assert empty == []


def test_every_metric_that_is_used_is_exported(run):
    assert {name for name in SERIES if PREFIX + name not in run.exported} == set()


def test_layers_of_the_pool_sum_to_its_size(run):
    assert run.layers == [(24, 24)]


@pytest.mark.parametrize("moment", ["thrashing", "quiet", "down"])
def test_grafanas_rules_agree_with_those_of_prometheus(run, moment):
    seen = run.moments[moment]
    assert seen.grafana == seen.prometheus
    expected = {"thrashing": ALERT, "quiet": None, "down": "EngineDown"}[moment]
    assert expected is None or seen.grafana[expected]
    for name, holds in seen.grafana.items():
        state = seen.states.get(name)
        # `firing` may also be an alert that is kept although its condition is over.
        assert state in (("pending", "firing") if holds else (None, "firing")), name
    if moment == "quiet":
        assert seen.states == {}


def test_counters_equal_the_statistics_of_the_recorded_run(run):
    totals, counters = run.totals, run.counters
    assert totals.recompute_tokens > 0
    assert sum(totals.preemptions.values()) > SHORT.limits.page_preemptions
    expected = {
        "steps_total": totals.steps,
        "computed_tokens_total|prefill": totals.prefill_tokens,
        "computed_tokens_total|decode": totals.decode_tokens,
        "computed_tokens_total|recompute": totals.recompute_tokens,
        "preemptions_total|no_free_block": sum(totals.preemptions.values()),
        "blocks_allocated_total|free": totals.allocated_free,
        "blocks_allocated_total|evicted": totals.allocated_evicted,
        "blocks_released_total": totals.released,
        "blocks_evicted_total": totals.evicted,
        "cow_copies_total": totals.cow_copies,
        "allocation_failures_total": totals.allocation_failures,
        "requests_scheduled_total|new": totals.scheduled_first,
        "requests_scheduled_total|resumed": totals.scheduled_resumed,
        "prefix_cache_queried_tokens_total": totals.prefix_queried_tokens,
        "prefix_cache_hit_tokens_total": totals.prefix_hit_tokens,
    }
    for reason in ("stop", "length", "abort", "rejected"):
        expected[f"requests_finished_total|{reason}"] = totals.requests_finished.get(reason, 0)
    histograms = (
        "time_to_first_token",
        "inter_token_latency",
        "request_duration",
        "queue_duration",
        "step_duration",
    )
    distributions = {f"{name}_seconds": getattr(totals, name) for name in histograms}
    for name, histogram in (
        distributions | {"request_preemptions": totals.request_preemptions}
    ).items():
        expected[f"{name}_count"] = histogram.count
        expected[f"{name}_sum"] = histogram.sum
    of_the_stream = {name for name in counters if name.startswith("stream_")}
    assert {name: counters[name] for name in counters.keys() - of_the_stream} == expected
