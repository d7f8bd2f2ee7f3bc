"""The dashboards, one a file, in the order in which somebody who is woken up reads them."""

from grafana.spec.boards.engine import engine
from grafana.spec.boards.kv_cache import kv_cache
from grafana.spec.boards.overview import overview
from grafana.spec.boards.preemption import preemption
from grafana.spec.panels import Dashboard
from grafana.spec.parameters import Parameters


def boards(parameters: Parameters) -> list[Dashboard]:
    return [
        overview(parameters),
        kv_cache(parameters),
        preemption(parameters),
        engine(parameters),
    ]
