"""`python -m engine.scenarios`: record the runs of demo_data, and write its README (`make demo-data`)."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from engine.core.config import ConfigError
from engine.scenarios.readme import readme
from engine.scenarios.runs import SCENARIOS
from engine.service.settings import ServeSettings


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Scenarios; all by default.", metavar="[NAME]...")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the traces.")] = Path("demo_data"),
) -> None:
    """Record scenarios with the default model, text included: all prompts are this project's own."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for name in names or ():
        if name not in known:
            raise ConfigError(f"{name} is no scenario: choose from {', '.join(known)}")
    # torch takes seconds to import: a wrong name is told before.
    from engine.scenarios.record import record
    from engine.service.model_parts import model_parts

    logging.getLogger("glasspool").addHandler(logging.NullHandler())
    console = Console(stderr=True, highlight=False)
    settings = ServeSettings(model="SmolLM2-135M-Instruct", engine_name="demo", record_text=True)
    with console.status("loading the model") as status:
        parts = model_parts(settings)
        for name in names or known:
            path = record(
                known[name],
                settings,
                parts,
                out,
                lambda step, name=name: status.update(f"{name}: step {step}"),
            )
            console.print(f"{path}: {path.stat().st_size / 1000:,.0f} kB")
    (out / "README.md").write_text(readme(SCENARIOS))


if __name__ == "__main__":
    try:
        typer.run(main)
    except ConfigError as error:
        print(f"demo-data: {error}", file=sys.stderr)
        sys.exit(1)
