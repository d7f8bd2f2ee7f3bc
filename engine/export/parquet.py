"""One table as a Parquet file, a row group at a time. Importing this needs pyarrow."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engine.export.tables import Kind, Row

ROWS_PER_GROUP = 65536

_TYPES = {
    Kind.INTEGER: pa.int64(),
    Kind.SECONDS: pa.float64(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
    Kind.TEXT: pa.string(),
    Kind.BOOLEAN: pa.bool_(),
}


class ParquetFile:
    """Takes rows; up to one row group of them waits in memory."""

    def __init__(self, path: Path, columns: dict[str, Kind]) -> None:
        self._columns = columns
        self._schema = pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
        self._rows: list[Row] = []
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def __enter__(self) -> "ParquetFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._writer.close()

    def add(self, row: Row) -> None:
        """Append a row; columns that it lacks are null."""
        self._rows.append(row)
        if len(self._rows) == ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            arrays = [self._array(name, kind) for name, kind in self._columns.items()]
            self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
            self._rows.clear()

    def _array(self, name: str, kind: Kind) -> pa.Array:
        values = [row.get(name) for row in self._rows]
        if kind is Kind.TIME:
            values = [None if time is None else round(time * 1e6) for time in values]
        return pa.array(values, _TYPES[kind])
