"""The committed dashboards as tests see them: panels, queries, what a query selects."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import promql_parser

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))


@dataclass(frozen=True)
class Shown:
    """A panel of a dashboard, as JSON."""

    dashboard: str
    panel: dict

    @property
    def name(self) -> str:
        return f"{self.dashboard}/{self.panel['title']}"

    @property
    def queries(self) -> list[str]:
        return [target["expr"] for target in self.panel["targets"]]


def load(path: Path) -> dict:
    return json.loads(path.read_text())


def shown(dashboard: dict) -> list[Shown]:
    """Panels without the rows."""
    return [
        Shown(dashboard["uid"], panel) for panel in dashboard["panels"] if panel["type"] != "row"
    ]


def all_shown() -> list[Shown]:
    return [panel for path in DASHBOARDS for panel in shown(load(path))]


def filled(query: str, window: str = "1m") -> str:
    """A panel's query with the variables replaced, as Grafana does for every engine."""
    query = query.replace("$__rate_interval", window)
    return query.replace("$job", ".*").replace("$instance", ".*")


def selectors(expr: promql_parser.Expr) -> Iterator[promql_parser.VectorSelector]:
    """All selections of series in a query."""
    found: list[promql_parser.VectorSelector] = []

    def keep(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(expr, keep)
    return iter(found)
