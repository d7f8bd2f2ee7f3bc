"""The scenarios as a file for `promtool test rules`."""

from grafana.spec.alerts import Alert, alerts
from grafana.spec.parameters import Parameters
from grafana.spec.scenarios import INTERVAL, LABELS, SAMPLES, UP, Firing, Scenario, scenarios


def rule_tests(parameters: Parameters) -> dict[str, object]:
    known = {alert.name: alert for alert in alerts(parameters)}
    return {
        "rule_files": ["rules.yml"],
        "evaluation_interval": INTERVAL,
        "tests": [_test(scenario, known, parameters) for scenario in scenarios()],
    }


def _test(scenario: Scenario, known: dict[str, Alert], parameters: Parameters) -> dict[str, object]:
    played = {UP: f"1x{scenario.minutes * SAMPLES}"} | scenario.series
    test: dict[str, object] = {
        "name": scenario.name,
        "interval": INTERVAL,
        "input_series": [{"series": name, "values": values} for name, values in played.items()],
        "promql_expr_test": [_never_others(scenario)],
    }
    for firing in scenario.firing:
        quiet = [firing.begins - 1] + ([] if firing.over is None else [firing.over])
        test["promql_expr_test"] += [_not_firing(firing.alert, minute) for minute in quiet]
    if scenario.firing:
        test["alert_rule_test"] = [
            _fires(firing, known[firing.alert], parameters) for firing in scenario.firing
        ]
    return test


def _never_others(scenario: Scenario) -> dict[str, object]:
    named = "|".join(firing.alert for firing in scenario.firing)
    firing = f'ALERTS{{alertstate="firing", alertname!~"{named}"}}[{scenario.minutes}m]'
    return {
        "expr": f"count by (alertname) (max_over_time({firing}))",
        "eval_time": f"{scenario.minutes}m",
        "exp_samples": [],
    }


def _not_firing(alert: str, minute: int) -> dict[str, object]:
    return {
        "expr": f'ALERTS{{alertstate="firing", alertname="{alert}"}}',
        "eval_time": f"{minute}m",
        "exp_samples": [],
    }


def _fires(firing: Firing, alert: Alert, parameters: Parameters) -> dict[str, object]:
    labels = {"job": LABELS["job"]} if firing.absent else LABELS
    instance = "any engine" if firing.absent else LABELS["instance"]
    return {
        "eval_time": f"{firing.begins}m",
        "alertname": firing.alert,
        "exp_alerts": [
            {
                "exp_labels": {**labels, "severity": str(alert.severity)},
                "exp_annotations": {
                    "summary": alert.summary.format(instance=instance),
                    "description": firing.description,
                    "runbook_url": f"{parameters.runbooks}/{alert.name}.md",
                },
            }
        ],
    }
