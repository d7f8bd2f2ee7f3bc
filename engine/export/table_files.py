"""The tables of a trace as files: Parquet with row groups, or CSV with a header line."""

import csv
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from engine.events.index import Progress
from engine.events.trace import TraceReader
from engine.export.tables import TABLES, Kind, Row, TableRows

RECORDS_PER_TELL = 256


class TableFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"


def export_tables(
    trace: Path,
    folder: Path,
    form: TableFormat,
    progress: Progress = lambda done, total: None,
) -> dict[Path, int]:
    """Write steps, events and requests of a trace into `folder`; returns the rows of each file.

    Raises TraceError for a bad trace, and then leaves no file; OSError where the folder can't be
    written; ImportError where Parquet is wanted and pyarrow is not installed.
    """
    if form is TableFormat.PARQUET:
        from engine.export.parquet import ParquetFile as TableFile
    else:
        TableFile = CsvFile
    with TraceReader(trace) as reader:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {name: folder / f"{name}.{form}" for name in TABLES}
        rows = dict.fromkeys(TABLES, 0)
        try:
            with ExitStack() as stack:
                files = {
                    name: stack.enter_context(TableFile(paths[name], columns))
                    for name, columns in TABLES.items()
                }
                for name, row in _all_rows(reader, trace.stat().st_size, progress):
                    files[name].add(row)
                    rows[name] += 1
        except BaseException:
            for path in paths.values():
                path.unlink(missing_ok=True)
            raise
    return {paths[name]: count for name, count in rows.items()}


def _all_rows(reader: TraceReader, size: int, progress: Progress) -> Iterator[tuple[str, Row]]:
    tables = TableRows(reader.header)
    state = None
    for number, (record, state) in enumerate(reader.fold()):
        yield from tables.rows(record, state)
        if number % RECORDS_PER_TELL == 0:
            progress(reader.position, size)
    if state is not None:
        yield from tables.end(state)
    progress(size, size)


class CsvFile:
    """One table as CSV. Wall times are written in ISO 8601."""

    def __init__(self, path: Path, columns: dict[str, Kind]) -> None:
        self._file = path.open("w", newline="", encoding="utf-8")
        self._times = [name for name, kind in columns.items() if kind is Kind.TIME]
        self._writer = csv.DictWriter(self._file, list(columns))
        self._writer.writeheader()

    def __enter__(self) -> "CsvFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: Row) -> None:
        """Append a row; columns that it lacks are empty."""
        for name in self._times:
            if row.get(name) is not None:
                row[name] = datetime.fromtimestamp(row[name], UTC).isoformat()
        self._writer.writerow(row)
