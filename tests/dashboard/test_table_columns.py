"""Columns of tables: cells, types and heads are declared once and stay together."""

import pandas as pd

from dashboard.table_columns import config_of, decimal, frame_of, text, whole

COLUMNS = (
    text("name", lambda row: row[0]),
    whole("blocks", lambda row: row[1], "Blocks held"),
    decimal("wait (s)", lambda row: row[2], "Seconds waited", format="%.3f"),
)


def test_what_is_not_known_is_no_number_and_whole_numbers_stay_whole():
    frame = frame_of(COLUMNS, [("a", 3, None), ("b", None, 0.5)])
    assert frame["name"].tolist() == ["a", "b"]
    assert frame["blocks"].dtype == pd.Int64Dtype()
    assert frame["blocks"].tolist() == [3, pd.NA]
    assert frame["wait (s)"].isna().tolist() == [True, False]
    assert frame["wait (s)"].dtype == float


def test_a_table_without_rows_has_its_columns_and_their_types():
    frame = frame_of(COLUMNS, [])
    assert list(frame.columns) == list(config_of(COLUMNS)) == ["name", "blocks", "wait (s)"]
    assert frame["blocks"].dtype == pd.Int64Dtype()


def test_a_head_says_its_name_and_what_it_means():
    head = config_of(COLUMNS)["wait (s)"]
    assert head["label"] == "wait (s)"
    assert head["help"] == "Seconds waited"
    assert head["type_config"]["format"] == "%.3f"
