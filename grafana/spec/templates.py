"""Texts of alerts in the two template languages.

Both are Go's, with `.Labels`; they differ in how a value is reached. No `$` is written: Grafana
expands it in some fields of a provisioned rule, from the environment, and which ones depends on
its version.
"""

from grafana.spec.alerts import Alert, Form, Leg
from grafana.spec.parameters import Parameters

_INSTANCE = '{{ or .Labels.instance "any engine" }}'


def annotations(alert: Alert, parameters: Parameters, values: list[str]) -> dict[str, str]:
    """The annotations of an alert; `values` are the template's expressions of the legs' values."""
    return {
        "summary": alert.summary.format(instance=_INSTANCE),
        "description": alert.description.format(*values, instance=_INSTANCE),
        "runbook_url": f"{parameters.runbooks}/{alert.name}.md",
    }


def prometheus_values(legs: tuple[Leg, ...]) -> list[str]:
    """An alert's own value is its first leg's; the others are asked for."""
    first, *others = legs
    return [f"{{{{ {_written('.Value', first.form)} }}}}", *map(_asked, others)]


def grafana_values(legs: tuple[Leg, ...], names: list[str]) -> list[str]:
    """`names` are the refIds of the reduced values."""
    return [
        "{{ " + _written(f'(index .Values "{name}").Value', leg.form) + " }}"
        for leg, name in zip(legs, names, strict=True)
    ]


def _asked(leg: Leg) -> str:
    selector = f"{leg.signal.record}{{job='%s',instance='%s'}}"
    query = f'printf "{selector}" .Labels.job .Labels.instance | query'
    value = _written(". | first | value", leg.form)
    return f"{{{{ with {query} }}}}{{{{ {value} }}}}{{{{ end }}}}"


def _written(value: str, form: Form) -> str:
    return f"{value} | {form}"
