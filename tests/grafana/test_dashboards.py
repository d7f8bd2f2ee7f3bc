"""Our own lint of the dashboards, in the spirit of Grafana's: they have not been in a Grafana here."""

import json
import re
import urllib.parse
from itertools import combinations

import promql_parser
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.spec.alerts import alerts
from grafana.spec.metrics import PREFIX, SERIES
from grafana.spec.parameters import Parameters
from grafana.spec.signals import signals
from tests.grafana.queries import DASHBOARDS, Shown, all_shown, filled, load, selectors

PANELS = all_shown()
RECORDED = {signal.record for signal in signals(Parameters()).rules()}
per_dashboard = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
per_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.name)


def test_there_are_the_four_dashboards():
    assert [load(path)["title"] for path in DASHBOARDS] == [
        "Glasspool / Engine and event stream",
        "Glasspool / KV cache",
        "Glasspool / Overview",
        "Glasspool / Preemption",
    ]
    assert all(load(path)["uid"] == path.stem for path in DASHBOARDS)


@per_dashboard
def test_grafanas_own_types_read_it_and_write_the_same(path):
    register_default_plugins()
    text = path.read_text()
    again = json.dumps(Dashboard.from_json(json.loads(text)), cls=JSONEncoder, indent=2) + "\n"
    assert json.loads(again) == json.loads(text)


@per_dashboard
def test_panels_lie_side_by_side_in_24_columns(path):
    rectangles = []
    for panel in load(path)["panels"]:
        grid = panel["gridPos"]
        left, top = grid["x"], grid["y"]
        rectangles.append((left, top, left + grid["w"], top + grid["h"]))
        assert rectangles[-1][2] <= 24
    for one, other in combinations(rectangles, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, (one, other)
    # No line has a hole at its end.
    covered = sum((right - left) * (bottom - top) for left, top, right, bottom in rectangles)
    assert covered == 24 * max(bottom for _, _, _, bottom in rectangles)


@per_dashboard
def test_ids_of_panels_are_their_own(path):
    ids = [panel["id"] for panel in load(path)["panels"]]
    assert len(set(ids)) == len(ids)


@per_dashboard
def test_readers_choose_source_job_engine_and_glasspools_address(path):
    names = [variable["name"] for variable in load(path)["templating"]["list"]]
    assert names == ["datasource", "job", "instance", "dashboard"]


@per_dashboard
def test_no_data_source_is_written_down(path):
    uids = re.findall(r'"uid": "([^"]+)"', path.read_text())
    assert set(uids) == {path.stem, "${datasource}"}


@per_dashboard
def test_alerts_and_restarts_are_drawn_into_every_chart(path):
    annotations = load(path)["annotations"]["list"]
    assert [annotation["name"] for annotation in annotations] == ["Alerts", "Restarts"]
    for annotation in annotations:
        promql_parser.parse(filled(annotation["target"]["expr"]))
        assert annotation["enable"]


@per_panel
def test_a_panel_says_what_it_shows_and_in_which_unit(panel: Shown):
    assert panel.panel["title"]
    description = panel.panel["description"]
    assert description.endswith(".")
    assert len(description) > 10
    assert panel.panel["fieldConfig"]["defaults"]["unit"]
    if panel.panel["type"] == "heatmap":
        assert panel.panel["options"]["cellValues"]["unit"]


@per_panel
def test_a_query_selects_what_the_reader_has_chosen(panel: Shown):
    for query in panel.queries:
        found = list(selectors(promql_parser.parse(query.replace("$__rate_interval", "1m"))))
        assert found
        for selector in found:
            values = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
            assert values["job"] == "$job"
            assert "$instance" in values["instance"]


@per_panel
def test_a_query_asks_for_what_exists(panel: Shown):
    for query in panel.queries:
        for selector in selectors(promql_parser.parse(filled(query))):
            name = selector.name
            assert (
                name in RECORDED or name.removeprefix(PREFIX) in SERIES or name in {"up", "ALERTS"}
            )


@per_panel
def test_windows_follow_the_resolution(panel: Shown):
    for query in panel.queries:
        windows = re.findall(r"\[([^\]]+)\]", query)
        assert set(windows) <= {"$__rate_interval"}
        assert bool(windows) == ("rate(" in query or "increase(" in query)


@per_panel
def test_legends_tell_lines_apart_and_colours_belong_to_one(panel: Shown):
    legends = [target["legendFormat"] for target in panel.panel["targets"]]
    assert all(legends)
    assert len(set(legends)) == len(legends)
    overrides = panel.panel["fieldConfig"].get("overrides", [])
    assert {override["matcher"]["options"] for override in overrides} <= set(legends)


@per_panel
def test_a_point_in_time_leads_to_glasspool_at_that_time(panel: Shown):
    if panel.panel["type"] == "stat":
        return
    (link,) = panel.panel["fieldConfig"]["defaults"]["links"]
    url = link["url"].replace("${dashboard:raw}", "http://127.0.0.1:8501")
    parts = urllib.parse.urlsplit(url.replace("${__value.time}", "1700000000000"))
    assert parts.netloc == "127.0.0.1:8501"
    assert urllib.parse.parse_qs(parts.query) == {"at": ["1700000000000"]}


@per_panel
def test_links_between_dashboards_lead_to_one(panel: Shown):
    for link in panel.panel.get("links", []):
        uid = link["url"].removeprefix("/d/").partition("?")[0]
        assert uid in {path.stem for path in DASHBOARDS}
        assert uid != panel.dashboard


@pytest.mark.parametrize("alert", alerts(Parameters()), ids=lambda alert: alert.name)
def test_an_alert_leads_to_a_panel_that_shows_its_signal(alert):
    uid, number = alert.panel
    (panel,) = [one for one in PANELS if one.dashboard == uid and one.panel["id"] == number]
    metrics = {
        selector.name
        for query in panel.queries
        for selector in selectors(promql_parser.parse(filled(query)))
    }
    signal = alert.legs[0].signal
    about = {signal.record.partition("{")[0]}
    if signal.expr:
        about |= {selector.name for selector in selectors(promql_parser.parse(signal.expr))}
    assert metrics & about
