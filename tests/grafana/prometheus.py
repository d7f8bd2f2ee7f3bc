"""Prometheus' HTTP API, and Grafana's alert rules evaluated by hand through it."""

import operator
import re

import httpx

Labels = frozenset[tuple[str, str]]
_COMPARISONS = {">": operator.gt, "<": operator.lt, "==": operator.eq}


class Prometheus:
    """What a started Prometheus knows."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=10)

    def query(self, expr: str, time: float | None = None) -> list[dict]:
        """The series of an instant query, each with `metric` and `value`."""
        parameters = {"query": expr} | ({} if time is None else {"time": time})
        answer = self.http.get("/api/v1/query", params=parameters)
        assert answer.status_code == 200, f"{expr}: {answer.text}"
        return answer.json()["data"]["result"]

    def values(self, expr: str, time: float | None = None) -> dict[Labels, float]:
        """The same by its labels, as job and instance, without the metric's name."""
        return {
            _labels(series["metric"]): float(series["value"][1])
            for series in self.query(expr, time)
        }

    def rules(self) -> dict[str, dict]:
        """The alerting rules by name, with `state`, `query` and `health`."""
        groups = self.http.get("/api/v1/rules", params={"type": "alert"}).json()["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def states(self) -> dict[str, str]:
        """inactive, pending or firing, by alert."""
        return {name: rule["state"] for name, rule in self.rules().items()}


def _labels(metric: dict[str, str]) -> Labels:
    return frozenset((name, value) for name, value in metric.items() if name != "__name__")


def grafana_condition(rule: dict, prometheus: Prometheus, time: float) -> set[Labels]:
    """For which engines a rule of Grafana's file holds at `time`.

    As Grafana's expressions do it: an instant query gives a number for each set of labels, a reduce of
    numbers passes them on, and a comparison joins those with equal labels. Raises AssertionError for
    a node that this test does not know.
    """
    numbers: dict[str, dict[Labels, float]] = {}
    for part in rule["data"]:
        model = part["model"]
        if part["datasourceUid"] != "__expr__":
            assert model["instant"]
            series = prometheus.query(model["expr"], time)
            assert all("__name__" not in one["metric"] for one in series)
            numbers[part["refId"]] = {
                _labels(one["metric"]): float(one["value"][1]) for one in series
            }
        elif model["type"] == "reduce":
            assert model["reducer"] == "last"
            numbers[part["refId"]] = numbers[model["expression"]]
        else:
            assert model["type"] == "math"
            numbers[part["refId"]] = _math(model["expression"], numbers)
    results = numbers[rule["condition"]]
    if not results:
        assert rule["noDataState"] in ("OK", "Alerting")
        return {frozenset()} if rule["noDataState"] == "Alerting" else set()
    return {labels for labels, value in results.items() if value != 0}


def _math(expression: str, numbers: dict[str, dict[Labels, float]]) -> dict[Labels, float]:
    comparisons = [
        re.fullmatch(r"\$(\w+) (>|<|==) (\S+)", part) for part in expression.split(" && ")
    ]
    assert all(comparisons), expression
    joined = set.intersection(*(set(numbers[found[1]]) for found in comparisons))
    return {
        labels: float(
            all(
                _COMPARISONS[found[2]](numbers[found[1]][labels], float(found[3]))
                for found in comparisons
            )
        )
        for labels in joined
    }
