"""Configuration of Prometheus and Alertmanager: what is scraped, rules, who is told.

`glasspool monitor` writes these files too, for the engines that it is given.
"""

from dataclasses import dataclass

from grafana.spec.alerts import Alert, Severity, alerts
from grafana.spec.parameters import JOB, Parameters
from grafana.spec.signals import signals
from grafana.spec.templates import annotations, prometheus_values


@dataclass(frozen=True)
class Target:
    """An engine: `scheme` is http or https, `address` is HOST:PORT."""

    scheme: str
    address: str


def prometheus_config(
    parameters: Parameters,
    targets: list[Target],
    alertmanager: str,
    key_file: str | None = None,
) -> dict[str, object]:
    """`alertmanager` is its HOST:PORT; `key_file` holds the engines' API key."""
    return {
        "global": {
            "scrape_interval": parameters.scrape_interval,
            "scrape_timeout": min(parameters.scrape_interval, "10s", key=_seconds),
            "evaluation_interval": parameters.evaluation_interval,
        },
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": _scrapes(targets, key_file),
    }


def _scrapes(targets: list[Target], key_file: str | None) -> list[dict[str, object]]:
    scrapes = []
    for scheme in sorted({target.scheme for target in targets}):
        name = JOB if scheme == "http" else f"{JOB}-{scheme}"
        scrape: dict[str, object] = {"job_name": name, "scheme": scheme}
        if key_file is not None:
            scrape["authorization"] = {"credentials_file": key_file}
        addresses = [target.address for target in targets if target.scheme == scheme]
        scrape["static_configs"] = [{"targets": addresses, "labels": {"job": JOB}}]
        scrapes.append(scrape)
    return scrapes


def rules(parameters: Parameters) -> dict[str, object]:
    """One group: its rules are evaluated in order, so an alert sees what was just recorded."""
    recorded: list[dict[str, object]] = [
        {"record": signal.record, "expr": signal.expr} for signal in signals(parameters).rules()
    ]
    alerting = [_alert(alert, parameters) for alert in alerts(parameters)]
    return {
        "groups": [
            {
                "name": "glasspool",
                "interval": parameters.evaluation_interval,
                "rules": recorded + alerting,
            }
        ]
    }


def _alert(alert: Alert, parameters: Parameters) -> dict[str, object]:
    rule: dict[str, object] = {
        "alert": alert.name,
        "expr": alert.condition,
        "for": alert.timing.hold,
    }
    if alert.timing.keep is not None:
        rule["keep_firing_for"] = alert.timing.keep
    return rule | {
        "labels": {"severity": str(alert.severity)},
        "annotations": annotations(alert, parameters, prometheus_values(alert.legs)),
    }


def alertmanager_config(parameters: Parameters, webhook: str | None = None) -> dict[str, object]:
    """Pages and tickets as two receivers; both post to `webhook`, or only show at Alertmanager."""
    delivery = parameters.delivery
    return {
        "route": {
            "receiver": str(Severity.TICKET),
            "group_by": ["alertname", "job", "instance"],
            "group_wait": delivery.group_wait,
            "group_interval": delivery.group_interval,
            "repeat_interval": delivery.repeat_ticket,
            "routes": [
                {
                    "receiver": str(Severity.PAGE),
                    "matchers": [f'severity="{Severity.PAGE}"'],
                    "repeat_interval": delivery.repeat_page,
                }
            ],
        },
        "inhibit_rules": [
            _inhibit('alertname="EngineDown"', 'alertname!="EngineDown"'),
            _inhibit('alertname="PreemptionThrash"', 'alertname="PreemptionBudgetBurn"'),
        ],
        "receivers": [_receiver(str(severity), webhook) for severity in Severity],
    }


def _inhibit(source: str, target: str) -> dict[str, object]:
    return {
        "source_matchers": [source],
        "target_matchers": [target],
        "equal": ["job", "instance"],
    }


def _receiver(name: str, webhook: str | None) -> dict[str, object]:
    if webhook is None:
        return {"name": name}
    return {"name": name, "webhook_configs": [{"url": webhook, "send_resolved": True}]}


def _seconds(duration: str) -> float:
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    number = duration.rstrip("hms")
    return int(number) * units[duration[len(number) :]]
