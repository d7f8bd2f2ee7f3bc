"""Where the results of `glasspool simulate` go: one trace, or a folder with a table and a chart."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.core.config import ConfigError
from engine.simulate.runs import Outcome

SUFFIX = ".jsonl.zst"


class Targets:
    """`out` is a file for the trace of the only run, or a folder; None writes nothing."""

    def __init__(self, out: Path | None, keep_traces: bool, runs: int) -> None:
        """Makes the folder. Raises ConfigError for what does not go together or can't be written."""
        self._file = self._folder = None
        self._keep_traces = keep_traces
        if out is not None and out.name.endswith(SUFFIX):
            if runs > 1:
                raise ConfigError(
                    f"{runs} runs do not fit into one trace {out}: name a folder with --out, and "
                    "add --keep-traces"
                )
            self._file = out
        elif out is not None:
            self._folder = out
            try:
                out.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _unwritable(out, error) from None
        if keep_traces and self._folder is None:
            raise ConfigError("--keep-traces needs a folder: name one with --out")

    def trace(self, name: str) -> Path | None:
        """Where the trace of a run goes, if anywhere."""
        if self._file is not None:
            return self._file
        if not self._keep_traces:
            return None
        return self._folder / f"{re.sub('[^A-Za-z0-9.=_-]+', '_', name)}{SUFFIX}"

    def save(self, outcomes: Sequence[Outcome], title: str) -> list[Path]:
        """Write outcomes.json and outcomes.svg into the folder; returns all that was written."""
        if self._file is not None:
            return [self._file]
        if self._folder is None:
            return []
        traces = [self._folder / outcome.trace for outcome in outcomes if outcome.trace]
        data, picture = self._folder / "outcomes.json", self._folder / "outcomes.svg"
        try:
            data.write_bytes(msgspec.json.format(msgspec.json.encode(list(outcomes)), indent=1))
            # Imported here: the picture needs what the runs do without.
            from engine.simulate.chart import outcomes_chart

            outcomes_chart(outcomes, title).save(picture)
        except ImportError:
            raise ConfigError(
                f"{picture} needs altair and vl-convert-python: install glasspool[bench]; "
                f"{data} is written"
            ) from None
        except OSError as error:
            raise _unwritable(self._folder, error) from None
        return [*traces, data, picture]


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"can't write {path}: {error.strerror}; choose another place with --out")
