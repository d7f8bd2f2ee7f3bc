"""What may be watched, by which name, in which order."""

import pytest

from dashboard.source import OVERVIEW, Catalog, SourceError, parse_source


@pytest.fixture
def folder(tmp_path):
    for name in ("alpha.jsonl.zst", OVERVIEW, "zeta.jsonl.zst", "README.md"):
        (tmp_path / name).touch()
    return tmp_path


def test_what_was_given_comes_first_then_the_overview_then_the_other_runs(folder):
    engine = parse_source("http://127.0.0.1:8000")
    names = Catalog([engine], folder).names
    assert names == ["127.0.0.1:8000", OVERVIEW, "alpha.jsonl.zst", "zeta.jsonl.zst"]


def test_a_file_that_is_given_and_shipped_is_there_once(folder):
    given = parse_source(str(folder / "zeta.jsonl.zst"))
    assert Catalog([given], folder).names == ["zeta.jsonl.zst", OVERVIEW, "alpha.jsonl.zst"]


def test_two_files_of_one_name_are_told_apart(folder):
    (folder / "more").mkdir()
    (folder / "more" / "zeta.jsonl.zst").touch()
    catalog = Catalog([], folder)
    name = catalog.add_trace(str(folder / "more" / "zeta.jsonl.zst"))
    assert name == "zeta.jsonl.zst (2)"
    assert catalog[name].path.parent.name == "more"


@pytest.mark.parametrize("text", ["missing.jsonl.zst", "README.md", "http://engine"])
def test_only_a_trace_that_is_there_can_be_added(folder, text):
    with pytest.raises(SourceError, match=text):
        Catalog([], folder).add_trace(text)
