"""Rules, played by promtool against its own clock; configurations, read by the programs themselves."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import promql_parser
import pytest

from grafana.prometheus_files import rules
from grafana.provisioning_files import alert_rules
from grafana.spec.alerts import alerts
from grafana.spec.parameters import Limits, Parameters, Windows
from grafana.yaml_text import yaml_text
from tests.conftest import needs
from tests.grafana.queries import ROOT

PROMETHEUS = ROOT / "grafana" / "prometheus"
GRAFANA_RULES = msgspec.yaml.decode(
    (ROOT / "grafana" / "provisioning" / "alerting" / "rules.yaml").read_bytes()
)


def check(*command: str, folder: Path = PROMETHEUS) -> str:
    """The output of a program that must be content."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs("promtool")
def test_promtool_finds_nothing_to_complain_about():
    assert "WARNING" not in check("promtool", "check", "config", "prometheus.yml")
    found = check("promtool", "check", "rules", "rules.yml")
    assert f"{len(rule_queries())} rules found" in found


@needs("amtool")
def test_amtool_finds_nothing_to_complain_about():
    assert "2 receivers" in check("amtool", "check-config", "alertmanager.yml")


@needs("promtool")
def test_every_scenario_alerts_as_it_should_and_no_more():
    assert "SUCCESS" in check("promtool", "test", "rules", "rules_test.yml")


@needs("promtool")
@pytest.mark.parametrize(
    ("changed", "scenario"),
    [
        # The long window and the count are what a burst stays silent by.
        (
            Parameters(
                windows=Windows(page_short="1m", page_long="1m"), limits=Limits(page_preemptions=1)
            ),
            "a burst of 30 s",
        ),
        (
            Parameters(limits=Limits(page_preemptions=1, ticket_preemptions=1)),
            "a nearly idle engine",
        ),
        (Parameters(limits=Limits(page_waste=0.6)), "half of the work is wasted"),
        (Parameters(limits=Limits(page_waste=0.03)), "4 % of the work is wasted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_scenarios_hold_the_numbers_in_place(tmp_path, changed, scenario):
    quick = {name: replace(timing, hold="30s") for name, timing in changed.timings.items()}
    (tmp_path / "rules.yml").write_text(yaml_text(rules(replace(changed, timings=quick))))
    tests = msgspec.yaml.decode((PROMETHEUS / "rules_test.yml").read_bytes())
    tests["tests"] = [test for test in tests["tests"] if test["name"].startswith(scenario)]
    assert len(tests["tests"]) == 1
    for test in tests["tests"]:
        test.pop("alert_rule_test", None)
        # What is left: alerts that a scenario does not name never fire.
        if scenario.startswith("half"):
            test["promql_expr_test"] = [
                {
                    "expr": 'count(max_over_time(ALERTS{alertname="PreemptionThrash"}[2h]))',
                    "eval_time": "2h",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ]
    (tmp_path / "rules_test.yml").write_text(yaml_text(tests))
    done = subprocess.run(
        ["promtool", "test", "rules", "rules_test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "got" in done.stdout + done.stderr


def rule_queries() -> list[str]:
    group = rules(Parameters())["groups"][0]
    return [rule["expr"] for rule in group["rules"]]


@pytest.mark.parametrize("query", rule_queries())
def test_a_rule_parses(query):
    promql_parser.parse(query)


def test_every_alert_is_told_in_full():
    for alert, rule in zip(alerts(Parameters()), GRAFANA_RULES["groups"][0]["rules"], strict=True):
        assert alert.name == rule["title"]
        assert alert.timing.hold == rule["for"]
        assert alert.timing.keep == rule.get("keepFiringFor")
        assert rule["labels"] == {"severity": str(alert.severity)}
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert (ROOT / rule["annotations"]["runbook_url"]).is_file()


def test_grafana_expands_no_variable_in_a_text():
    for rule in GRAFANA_RULES["groups"][0]["rules"]:
        assert "$" not in str(rule["annotations"]) + str(rule["labels"])


def test_grafana_evaluates_on_a_tick_of_its_scheduler():
    interval = GRAFANA_RULES["groups"][0]["interval"]
    assert int(re.fullmatch(r"(\d+)s", interval)[1]) % 10 == 0


def test_grafanas_thresholds_are_in_expressions_and_no_query_compares():
    for rule in alert_rules(Parameters())["groups"][0]["rules"]:
        queries = [part for part in rule["data"] if part["datasourceUid"] == "glasspool-prometheus"]
        expressions = [part for part in rule["data"] if part["datasourceUid"] == "__expr__"]
        assert len(expressions) == len(queries) + 1
        assert not any(re.search(r"[<>]|==", part["model"]["expr"]) for part in queries)
        assert rule["condition"] == expressions[-1]["refId"]


def test_the_data_source_of_the_rules_is_provisioned():
    text = (ROOT / "grafana" / "provisioning" / "datasources" / "glasspool.yaml").read_bytes()
    assert "glasspool-prometheus" in [
        one["uid"] for one in msgspec.yaml.decode(text)["datasources"]
    ]


def test_compose_mounts_what_is_built():
    folder = ROOT / "grafana"
    compose = msgspec.yaml.decode((folder / "compose.yaml").read_bytes())
    mounted = [
        volume.partition(":")
        for service in compose["services"].values()
        for volume in service["volumes"]
        if volume.startswith("./")
    ]
    assert len(mounted) == 4
    assert all((folder / source).exists() for source, _, _ in mounted)
    dashboards = (folder / "provisioning" / "dashboards" / "glasspool.yaml").read_bytes()
    (provider,) = msgspec.yaml.decode(dashboards)["providers"]
    assert provider["options"]["path"] + ":ro" in [target for _, _, target in mounted]
