"""Grafana's file provisioning: data sources, the dashboards' folder, alert rules, who is told.

The shape of these files differs from that of Grafana's HTTP API: a folder is named by its title,
intervals are strings, and `$` is expanded from the environment in some fields (none is written in
those).
"""

from grafana.spec.alerts import Alert, Leg, alerts
from grafana.spec.parameters import Parameters
from grafana.spec.templates import annotations, grafana_values

PROMETHEUS = "glasspool-prometheus"
ALERTMANAGER = "glasspool-alertmanager"
FOLDER = "Glasspool"
_PROMETHEUS_URL = "http://127.0.0.1:9090"
_ALERTMANAGER_URL = "http://127.0.0.1:9093"
_DASHBOARDS = "/etc/grafana/glasspool-dashboards"
_LOOK_BACK = 600
_NOTHING = {"from": 0, "to": 0}


def provisioning_files(parameters: Parameters) -> dict[str, dict[str, object]]:
    """Each document by its path under `provisioning/`."""
    return {
        "datasources/glasspool.yaml": _datasources(parameters),
        "dashboards/glasspool.yaml": _dashboards(),
        "alerting/rules.yaml": alert_rules(parameters),
        "alerting/contact-points.yaml": _contact_points(),
        "alerting/policies.yaml": _policies(parameters),
    }


def _datasources(parameters: Parameters) -> dict[str, object]:
    return {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Glasspool Prometheus",
                "type": "prometheus",
                # The alert rules name it.
                "uid": PROMETHEUS,
                "access": "proxy",
                "url": _PROMETHEUS_URL,
                "isDefault": True,
                "jsonData": {
                    "httpMethod": "POST",
                    # $__rate_interval is made from it.
                    "timeInterval": parameters.scrape_interval,
                    "alertmanagerUid": ALERTMANAGER,
                },
            },
            {
                "name": "Glasspool Alertmanager",
                "type": "alertmanager",
                "uid": ALERTMANAGER,
                "access": "proxy",
                "url": _ALERTMANAGER_URL,
                "jsonData": {"implementation": "prometheus", "handleGrafanaManagedAlerts": False},
            },
        ],
    }


def _dashboards() -> dict[str, object]:
    provider: dict[str, object] = {
        "name": "glasspool",
        "folder": FOLDER,
        "type": "file",
        "disableDeletion": True,
        "allowUiUpdates": False,
        "updateIntervalSeconds": 30,
        "options": {"path": _DASHBOARDS},
    }
    return {"apiVersion": 1, "providers": [provider]}


def alert_rules(parameters: Parameters) -> dict[str, object]:
    """The alerts as Grafana's own rules, for a Grafana whose Prometheus loads no rule files of
    alerts. They read the recorded signals.
    """
    group = {
        "orgId": 1,
        "name": "glasspool",
        "folder": FOLDER,
        "interval": parameters.grafana_interval,
        "rules": [_rule(alert, parameters) for alert in alerts(parameters)],
    }
    return {"apiVersion": 1, "groups": [group]}


def _rule(alert: Alert, parameters: Parameters) -> dict[str, object]:
    letters = [chr(ord("A") + number) for number in range(len(alert.legs))]
    reduced = [f"R{letter}" for letter in letters]
    data = [_query(letter, leg) for letter, leg in zip(letters, alert.legs, strict=True)]
    data += [_reduce(name, letter) for name, letter in zip(reduced, letters, strict=True)]
    rule: dict[str, object] = {
        "uid": f"glasspool-{alert.name}",
        "title": alert.name,
        "condition": "firing",
        "data": [*data, _math("firing", alert.legs, reduced)],
        "dashboardUid": alert.panel[0],
        "panelId": alert.panel[1],
        # Fine is a 0 of the comparison. No series is an engine that is not there, which is
        # EngineDown's to tell.
        "noDataState": "Alerting" if alert.absent else "OK",
        "execErrState": "Error",
        "for": alert.timing.hold,
    }
    if alert.timing.keep is not None:
        rule["keepFiringFor"] = alert.timing.keep
    return rule | {
        "labels": {"severity": str(alert.severity)},
        "annotations": annotations(alert, parameters, grafana_values(alert.legs, reduced)),
    }


def _query(name: str, leg: Leg) -> dict[str, object]:
    # Without the aggregation each value would keep its metric's name as a label, and values with
    # different labels don't meet in an expression.
    expr = f"max by (job, instance) ({leg.signal.record})"
    model = {"refId": name, "expr": expr, "instant": True, "range": False}
    return _data(name, PROMETHEUS, {"from": _LOOK_BACK, "to": 0}, model)


def _reduce(name: str, source: str) -> dict[str, object]:
    model = {"refId": name, "type": "reduce", "expression": source, "reducer": "last"}
    return _data(name, "__expr__", _NOTHING, model)


def _math(name: str, legs: tuple[Leg, ...], reduced: list[str]) -> dict[str, object]:
    comparisons = [
        f"${source} {leg.operator} {leg.limit:g}" for leg, source in zip(legs, reduced, strict=True)
    ]
    model = {"refId": name, "type": "math", "expression": " && ".join(comparisons)}
    return _data(name, "__expr__", _NOTHING, model)


def _data(
    name: str, datasource: str, times: dict[str, int], model: dict[str, object]
) -> dict[str, object]:
    kind = "prometheus" if datasource == PROMETHEUS else "__expr__"
    return {
        "refId": name,
        "relativeTimeRange": times,
        "datasourceUid": datasource,
        "model": {**model, "datasource": {"type": kind, "uid": datasource}},
    }


def _contact_points() -> dict[str, object]:
    receiver = {
        "uid": "glasspool-alertmanager",
        "type": "prometheus-alertmanager",
        "settings": {"url": _ALERTMANAGER_URL},
    }
    return {
        "apiVersion": 1,
        "contactPoints": [{"orgId": 1, "name": "Glasspool", "receivers": [receiver]}],
    }


def _policies(parameters: Parameters) -> dict[str, object]:
    delivery = parameters.delivery
    policy = {
        "orgId": 1,
        "receiver": "Glasspool",
        "group_by": ["grafana_folder", "alertname", "job", "instance"],
        "group_wait": delivery.group_wait,
        "group_interval": delivery.group_interval,
        "repeat_interval": delivery.repeat_page,
    }
    return {"apiVersion": 1, "policies": [policy]}
