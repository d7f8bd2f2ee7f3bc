"""The columns of a table: what each shows of a row, of which type it is, and what its head says."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pandas as pd
import streamlit as st

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """`value` gives a row's cell; None stands for what is not known. `config` is Streamlit's."""

    name: str
    value: Callable[[Row], Any]
    dtype: str | None
    config: Any


def text(name: str, value: Callable[[Row], Any], help: str | None = None, **options: Any) -> Column:
    """A column of words."""
    return Column(name, value, None, st.column_config.TextColumn(name, help=help, **options))


def whole(name: str, value: Callable[[Row], int | None], help: str, **options: Any) -> Column:
    """A column of whole numbers."""
    config = st.column_config.NumberColumn(name, help=help, **options)
    return Column(name, value, "Int64", config)


def decimal(name: str, value: Callable[[Row], float | None], help: str, **options: Any) -> Column:
    """A column of numbers with decimals."""
    config = st.column_config.NumberColumn(name, help=help, **options)
    return Column(name, value, "float", config)


def frame_of(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a table of these columns."""
    rows = list(rows)
    frame = pd.DataFrame({column.name: [column.value(row) for row in rows] for column in columns})
    return frame.astype({column.name: column.dtype for column in columns if column.dtype})


def config_of(columns: Sequence[Column]) -> dict[str, Any]:
    """What st.dataframe takes as `column_config`."""
    return {column.name: column.config for column in columns}
