"""`python -m grafana.build`: writes every file of the monitoring from the spec (`make grafana`)."""

from pathlib import Path

from grafana.dashboard_files import dashboard_files
from grafana.prometheus_files import Target, alertmanager_config, prometheus_config, rules
from grafana.provisioning_files import provisioning_files
from grafana.rule_tests import rule_tests
from grafana.runbooks import read, runbook
from grafana.spec.alerts import alerts
from grafana.spec.parameters import Parameters
from grafana.yaml_text import yaml_text

ROOT = Path(__file__).parents[1]
ENGINE = Target("http", "127.0.0.1:8000")
ALERTMANAGER = "127.0.0.1:9093"


def files(parameters: Parameters, root: Path) -> dict[str, str]:
    """The text of each file by its path from `root`, which has the runbooks as they are now."""
    documents = {
        "grafana/prometheus/prometheus.yml": prometheus_config(parameters, [ENGINE], ALERTMANAGER),
        "grafana/prometheus/rules.yml": rules(parameters),
        "grafana/prometheus/rules_test.yml": rule_tests(parameters),
        "grafana/prometheus/alertmanager.yml": alertmanager_config(parameters),
    }
    for path, document in provisioning_files(parameters).items():
        documents[f"grafana/provisioning/{path}"] = document
    texts = {path: yaml_text(document) for path, document in documents.items()}
    for path, text in dashboard_files(parameters).items():
        texts[f"grafana/dashboards/{path}"] = text
    for alert in alerts(parameters):
        path = f"docs/runbooks/{alert.name}.md"
        texts[path] = runbook(alert, read(root / path))
    return texts


def main() -> None:
    for path, text in files(Parameters(), ROOT).items():
        target = ROOT / path
        if read(target) != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
