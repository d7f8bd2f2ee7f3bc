"""Runbooks: the facts on top are written from the spec, the rest by hand and kept as it is."""

from pathlib import Path

from grafana.spec.alerts import Alert

BEGIN = "<!-- facts: written by `make grafana` from grafana/spec -->"
END = "<!-- end of facts -->"
SECTIONS = ("What it means", "What to look at", "What to do", "What not to do")


def runbook(alert: Alert, written: str | None) -> str:
    """The text of a runbook; `written` is what is there now. Raises ValueError without its markers."""
    if written is None:
        rest = "".join(f"\n## {section}\n\nTo be written.\n" for section in SECTIONS)
        return f"{_facts(alert)}\n{rest}"
    head, begin, after = written.partition(BEGIN)
    _, end, rest = after.partition(END)
    if head or not begin or not end:
        raise ValueError(
            f"the runbook of {alert.name} must begin with `{BEGIN}` and have `{END}`: "
            "move it away and build again for a new frame"
        )
    return f"{_facts(alert)}{rest}"


def read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _facts(alert: Alert) -> str:
    keep = f", and goes on for {alert.timing.keep} after" if alert.timing.keep else ""
    absent = (
        ["", "It also fires where Prometheus knows of no engine at all."] if alert.absent else []
    )
    return "\n".join(
        [
            BEGIN,
            f"# {alert.name}",
            "",
            f"A **{alert.severity}**. It fires for an engine where all of this holds for "
            f"{alert.timing.hold}{keep}:",
            "",
            *(f"- {leg.words}" for leg in alert.legs),
            *absent,
            "",
            f"Panel {alert.panel[1]} of the Grafana dashboard `{alert.panel[0]}` shows the first.",
            END,
        ]
    )
