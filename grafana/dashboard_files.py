"""Dashboards of the spec as Grafana's JSON: variables, annotations, links, rows and panels."""

import json

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus as build_prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from grafana.panel_builders import DATASOURCE, build_panel
from grafana.spec.boards import boards
from grafana.spec.boards.shared import FIRING
from grafana.spec.colours import BAD, WATCH
from grafana.spec.metrics import chosen
from grafana.spec.panels import Dashboard
from grafana.spec.parameters import Parameters

TAG = "glasspool"
GLASSPOOL_DASHBOARD = "http://127.0.0.1:8501"
_FIRST_ROW_ID = 1000


def dashboard_files(parameters: Parameters) -> dict[str, str]:
    """The text of each dashboard by its file's name."""
    return {
        f"{board.uid}.json": json.dumps(_build(board), cls=JSONEncoder, indent=2) + "\n"
        for board in boards(parameters)
    }


def _build(board: Dashboard) -> dashboard.Dashboard:
    builder = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .time("now-1h", "now")
        .refresh("10s")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .readonly()
    )
    for variable in _variables():
        builder.with_variable(variable)
    for annotation in _annotations():
        builder.annotation(annotation)
    builder.link(
        build.DashboardLink("Glasspool")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
    )
    for number, section in enumerate(board.sections):
        builder.with_row(build.Row(section.title).id(_FIRST_ROW_ID + number))
        for panel in section.panels:
            builder.with_panel(build_panel(panel))
    return builder.build()


def _variables() -> list[build.DatasourceVariable | build.QueryVariable | build.TextBoxVariable]:
    chosen_by_default = dashboard.VariableOption(
        selected=True, text=GLASSPOOL_DASHBOARD, value=GLASSPOOL_DASHBOARD
    )
    return [
        build.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        _labels("job", "Job", "label_values(glasspool_build_info, job)"),
        _labels("instance", "Engine", 'label_values(up{job=~"$job"}, instance)'),
        build.TextBoxVariable("dashboard")
        .label("Glasspool dashboard")
        .description("Where a point of a chart leads: the pool at that time, block by block.")
        .default_value(GLASSPOOL_DASHBOARD)
        .current(chosen_by_default)
        .options([chosen_by_default]),
    ]


def _labels(name: str, label: str, query: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .query({"query": query, "refId": name})
        .definition(query)
        .datasource(DATASOURCE)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _annotations() -> list[build.AnnotationQuery]:
    restarted = f"resets({chosen('steps_total')}[1m]) > 0"
    return [
        _annotation("Alerts", BAD, FIRING, "{{alertname}}", "{{instance}}, {{severity}}"),
        _annotation("Restarts", WATCH, restarted, "restarted", "{{instance}}"),
    ]


def _annotation(name: str, colour: str, expr: str, title: str, text: str) -> build.AnnotationQuery:
    target = build_prometheus.Dataquery().ref_id(name).expr(expr).range().datasource(DATASOURCE)
    return (
        build.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(colour)
        .target(target)
        .expr(expr)
        .title_format(title)
        .text_format(text)
        .tag_keys("alertname,severity" if name == "Alerts" else "instance")
        .step("15s")
    )
