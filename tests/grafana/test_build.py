"""What is committed is what the spec says; runbooks keep what people wrote."""

import re
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grafana.build import files
from grafana.runbooks import BEGIN, END, SECTIONS, runbook
from grafana.spec.alerts import alerts
from grafana.spec.metrics import series
from grafana.spec.parameters import Parameters
from grafana.yaml_text import yaml_text
from tests.grafana.queries import ROOT

BUILT = files(Parameters(), ROOT)
ALERTS = alerts(Parameters())


@pytest.mark.parametrize("path", BUILT)
def test_a_committed_file_is_what_the_spec_builds(path):
    assert (ROOT / path).read_text() == BUILT[path], "run `make grafana`"


def test_nothing_is_left_over_from_an_older_spec():
    folders = ("grafana/dashboards", "grafana/provisioning", "grafana/prometheus", "docs/runbooks")
    there = {path for folder in folders for path in (ROOT / folder).rglob("*.*")}
    assert {str(path.relative_to(ROOT)) for path in there} == BUILT.keys()


_words = st.text(max_size=20) | st.sampled_from(["on", "1e3", "5m", "a: b", "- x", "#", "'", "~"])
_texts = _words.filter(lambda text: text.isprintable()) | st.just("sum(\n  x\n)\n/ y")
_scalars = _texts | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_keys = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3)
)


@given(st.dictionaries(_keys, _values, min_size=1, max_size=3))
def test_yaml_reads_back_as_it_was_written(document):
    assert msgspec.yaml.decode(yaml_text(document)) == document


def test_a_metric_that_no_engine_exports_is_refused():
    with pytest.raises(KeyError, match="preemption_total"):
        series("preemption_total")


def test_a_change_of_a_number_reaches_every_file_that_tells_it():
    changed = Parameters(limits=replace(Parameters().limits, page_waste=0.25))
    different = {path for path, text in files(changed, ROOT).items() if text != BUILT[path]}
    assert different == {
        "grafana/prometheus/rules.yml",
        "grafana/provisioning/alerting/rules.yaml",
        "grafana/dashboards/glasspool-overview.json",
        "grafana/dashboards/glasspool-preemption.json",
        "docs/runbooks/PreemptionThrash.md",
    }


def test_a_build_keeps_the_prose_of_a_runbook():
    frame = runbook(ALERTS[0], None)
    assert all(f"## {section}" in frame for section in SECTIONS)
    written = frame.replace("To be written.", "Look at the pool.")
    slower = replace(ALERTS[0], timing=replace(ALERTS[0].timing, hold="7m"))
    again = runbook(slower, written)
    assert "holds for 7m" in again
    assert again.partition(END)[2] == written.partition(END)[2]


@pytest.mark.parametrize("broken", ["# Mine", f"{BEGIN}\n# Mine", f"Mine\n{BEGIN}\n{END}"])
def test_a_runbook_without_its_markers_is_refused(broken):
    with pytest.raises(ValueError, match="PreemptionThrash must begin with"):
        runbook(ALERTS[0], broken)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_runbook_answers_its_questions(alert):
    text = (ROOT / "docs" / "runbooks" / f"{alert.name}.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert tuple(headings) == SECTIONS
    for section in text.split("\n## ")[1:]:
        assert len(section.split()) > 20, section
    assert "To be written" not in text


def test_options_that_runbooks_name_exist():
    import typer.main

    from engine.cli import app

    commands = typer.main.get_command(app).commands
    known = {
        name
        for command in ("serve", "monitor")
        for param in commands[command].params
        for name in param.opts
    }
    texts = [path.read_text() for path in (ROOT / "docs" / "runbooks").glob("*.md")]
    named = {option for text in texts for option in re.findall(r"`(--[a-z-]+)", text)}
    assert len(named) > 5
    assert named <= known


def test_quoted_panels_that_runbooks_name_exist():
    titles = {
        title
        for path, text in BUILT.items()
        if path.endswith(".json")
        for title in re.findall(r'"title": "([^"]+)"', text)
    }
    for path in (ROOT / "docs" / "runbooks").glob("*.md"):
        for name in re.findall(r'"([A-Z][^"\n]+)"', path.read_text()):
            assert name in titles, f"{path.name} sends its reader to {name!r}"
