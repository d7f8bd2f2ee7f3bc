"""Measured times of paged attention over the block size: what `glasspool bench attention` wrote."""

import statistics
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.core.config import ConfigError


class AttentionRow(
    msgspec.Struct,
    frozen=True,
    rename={"block_size": "block size", "ratio": "paged / contiguous"},
):
    """One shape: `batch` rows of `context` keys. contiguous, paged: microseconds a call; ratio: the
    median of paired calls, paged / contiguous."""

    context: int
    batch: int
    block_size: int
    contiguous: float
    paged: float
    ratio: float


class Measured(msgspec.Struct, frozen=True):
    """Rows with what they were measured on and by; None where the file does not tell."""

    rows: list[AttentionRow]
    device: str | None = None
    kernels: str | None = None
    dtype: str | None = None
    torch: str | None = None
    date: str | None = None
    command: str | None = None

    def ratio(self, block_size: int) -> "Ratio | None":
        """Over all shapes measured at this block size; None where there are none."""
        ratios = [row.ratio for row in self.rows if row.block_size == block_size]
        if not ratios:
            return None
        return Ratio(statistics.median(ratios), min(ratios), max(ratios), len(ratios))

    @property
    def origin(self) -> str:
        """Where the times come from, in a line."""
        told = [
            self.device,
            self.kernels,
            self.dtype,
            self.torch and f"torch {self.torch}",
            self.date,
        ]
        known = [part for part in told if part]
        return ", ".join(known) if known else "the file does not tell on what it was measured"


@dataclass(frozen=True)
class Ratio:
    """Time of paged attention as a multiple of contiguous attention's, over `shapes` shapes."""

    median: float
    least: float
    most: float
    shapes: int


def read_attention(path: Path) -> Measured:
    """A file of `glasspool bench attention --out` (a list of rows), or one with its origin beside them.

    Raises ConfigError where the file can't be read or is neither.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}; give the file that `glasspool bench attention --out FOLDER` wrote"
        ) from None
    try:
        found = msgspec.json.decode(data, type=list[AttentionRow] | Measured)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} has no attention times ({error}): "
            "`glasspool bench attention --out FOLDER` writes them to FOLDER/attention.json"
        ) from None
    return found if isinstance(found, Measured) else Measured(found)
