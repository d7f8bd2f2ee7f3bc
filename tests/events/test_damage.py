"""Whatever a file holds, every reader of traces says in one line what is wrong with it, and where."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import pyzstd
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.events import SeekableTrace, TraceError, TraceReader, encode
from engine.events.checking import check_trace
from engine.events.diff import diff_traces
from engine.events.stats import measure_trace
from engine.export.perfetto import export_perfetto
from engine.export.table_files import TableFormat, export_tables
from tests.events.traces import busy_run, write_trace

RUN = busy_run()


def read(path, folder):
    with TraceReader(path) as reader:
        for _ in reader.fold():
            pass


def seek(path, folder):
    trace = SeekableTrace(path)
    for seq in {trace.first_seq, (trace.first_seq + trace.last_seq) // 2, trace.last_seq}:
        trace.state_at(seq)
    for _ in trace.records_after(trace.last_seq - 2):
        pass


READERS = {
    "read": read,
    "seek": seek,
    "check": lambda path, folder: check_trace(path),
    "stats": lambda path, folder: measure_trace(path),
    "perfetto": lambda path, folder: export_perfetto(path, folder / "out.json"),
    "csv": lambda path, folder: export_tables(path, folder / "out", TableFormat.CSV),
    "diff": lambda path, folder: diff_traces(path, folder / "good.jsonl.zst"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    return write_trace(folder / "good.jsonl.zst", *RUN, events_per_keyframe=40)


def complaints(good: Path, data: bytes) -> dict[str, str]:
    """What each reader says of a file; those that read it without complaint are left out."""
    folder = good.parent
    path = folder / "bad.jsonl.zst"
    path.write_bytes(data)
    said = {}
    for name, reader in READERS.items():
        try:
            reader(path, folder)
        except TraceError as error:
            said[name] = str(error)
        left = [*folder.glob("out.json"), *(folder / "out").glob("*.csv")]
        assert not left or name not in said, "half an export is left"
        for file in left:
            file.unlink()
    for text in said.values():
        assert "\n" not in text
        assert len(text) < 1000
        assert "bad.jsonl.zst" in text
    return said


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_cut_file_is_read_or_refused_in_one_line(good, data):
    whole = good.read_bytes()
    complaints(good, whole[: data.draw(st.integers(0, len(whole) - 1))])


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_flipped_bit_changes_what_is_read_without_a_word(good, data):
    whole = bytearray(good.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    said = complaints(good, bytes(whole))
    if "read" not in said:
        with TraceReader(good) as reader:
            right = list(reader)
        with TraceReader(good.with_name("bad.jsonl.zst")) as reader:
            assert list(reader) == right or reader.cut_off


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_lines_in_any_order_are_read_or_refused_in_one_line(good, data):
    """Left out, doubled, swapped, taken from elsewhere, or of another kind of JSON."""
    right = pyzstd.ZstdFile(good).read().splitlines(keepends=True)
    lines = list(right)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "double", "move", "other", "edit"])):
            case "drop":
                del lines[place]
            case "double":
                lines.insert(place, lines[place])
            case "move":
                lines.insert(data.draw(st.integers(0, len(lines) - 1)), lines.pop(place))
            case "other":
                lines[place] = data.draw(OTHER_LINES) + b"\n"
            case "edit":
                # A line that was right: those that are no JSON already are not edited.
                lines[place] = edited(data, json.loads(data.draw(st.sampled_from(right))))
        if not lines:
            break
    complaints(good, pyzstd.compress(b"".join(lines)))


OTHER_LINES = st.one_of(
    st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")),
    st.sampled_from(
        [b"{}", b"[]", b"null", b'{"type":"step"}', b'{"type":"?"}', b"[" * 5000, b'{"type":1}',
         b'{"type":"gap","after":1,"count":99999999999999999999999,"why":""}',
         b'{"type":"gap","after":3,"count":0,"why":"a\\nb"}', b"\xff\xfe", b"\x00" * 50]
    ),
)  # fmt: skip


def edited(data, record):
    """A number somewhere in the record becomes another."""
    spots = []

    def walk(value):
        for key in value if isinstance(value, dict) else range(len(value)):
            if isinstance(value[key], dict | list):
                walk(value[key])
            elif isinstance(value[key], int | float):
                spots.append((value, key))

    walk(record)
    if spots:
        holder, key = data.draw(st.sampled_from(spots))
        numbers = [-1, 0, 1, 7, 10**6, 2**63, -(2**63), 0.5, 1e300]
        holder[key] = data.draw(st.sampled_from(numbers))
    return json.dumps(record).encode() + b"\n"


def replaced(good, number, line):
    lines = pyzstd.ZstdFile(good).read().splitlines(keepends=True)
    lines[number : number + 1] = line
    return pyzstd.compress(b"".join(lines))


def header_line(**fields):
    return json.dumps({**json.loads(encode(RUN[0])), **fields}).encode() + b"\n"


FOLDED_BADLY = (
    b'{"type":"step","seq":0,"step":0,"time":1.0,"durations":{"schedule":0,"model":0,'
    b'"sample":0},"tokens":{},"queues":{"waiting":0,"running":0,"preempted":0},"events":[%s]}\n'
)


OTHER_VERSION = "schema version 7 is not supported, this Glasspool reads version 1: read it with"


@pytest.mark.parametrize(
    ("number", "line", "words"),
    [
        (0, [header_line(schema_version=7)], OTHER_VERSION),
        (0, [b'{"type":"header","schema_version":2,"new":[]}\n'], "schema version 2"),
        (0, [header_line(num_blocks=10**12)], "num_blocks"),
        (0, [header_line(num_blocks=0)], "num_blocks"),
        (0, [header_line(block_size=0)], "block_size"),
        (0, [], "does not begin with a header"),
        (0, [b'{"a": 1}\n'], "line 1: not a Glasspool record"),
        (1, [], "line 2: step record 0 came before a keyframe"),
        (1, [header_line()], "line 2: a second header"),
        (2, [FOLDED_BADLY % b'{"type":"computed","sequence":5,"tokens":1}'], "line 3: step record 0"),
        (2, [FOLDED_BADLY % b"", FOLDED_BADLY % b""], "line 4: step record 0 follows 0"),
        (3, [b'{"type":"gap","after":0,"count":2,"why":"x"}\n'] * 2, "a gap stands where a keyframe"),
        (2, [b'{"type":"keyframe","seq":0}\n'], "line 3: not a Glasspool record"),
        (2, [b"[" * 100_000 + b"\n"], "line 3: not a Glasspool record"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(good, number, line, words):
    said = complaints(good, replaced(good, number, line))
    said.pop("seek", None)
    if words.startswith("a gap stands") or "step record" in words:
        # For `check` this is a broken rule, not a damaged file.
        assert "check" not in said
        said["check"] = words
    assert said.keys() == READERS.keys() - {"seek"}
    for text in said.values():
        assert words in text


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b'{"type":"header"}\n', pyzstd.compress(b""), pyzstd.compress(b"\0" * 99),
     b"\x1f\x8b\x08\x00" + b"\0" * 40, b"PK\x03\x04" + b"\0" * 40, b"\x28\xb5\x2f\xfd"],
)  # fmt: skip
def test_a_foreign_file_is_refused_by_all(good, content):
    said = complaints(good, content)
    assert said.keys() == READERS.keys()
    for text in said.values():
        assert "not a" in text
        assert "Glasspool" in text


def test_a_folder_and_a_missing_file_are_refused(good, tmp_path):
    for path in (tmp_path, tmp_path / "none.zst"):
        for reader in READERS.values():
            with pytest.raises(TraceError, match="cannot open trace"):
                reader(path, good.parent)


# -- files that are made to do harm ---------------------------------------------------------------

MEMORY = 1536 * 1024 * 1024
"""Bytes of address space: a quarter of what the files below expand to."""
FOUR_GB = 4 << 30


def write_bomb(path: Path, start: bytes, filling: bytes) -> int:
    """A file that expands to 4 GB: `start`, then `filling` over and over. Returns its size."""
    compressor = pyzstd.ZstdCompressor(level_or_option=19)
    chunk = filling * ((1 << 20) // len(filling))
    one = compressor.compress(start + chunk * 64, pyzstd.ZstdCompressor.FLUSH_FRAME)
    # Frames of one content are alike; the first has the start.
    same = pyzstd.ZstdCompressor(level_or_option=19).compress(
        chunk * 64, pyzstd.ZstdCompressor.FLUSH_FRAME
    )
    path.write_bytes(one + same * (FOUR_GB // (len(chunk) * 64)))
    return path.stat().st_size


def run_limited(*args: str) -> subprocess.CompletedProcess:
    """The command line with an address space of MEMORY."""
    return subprocess.run(
        [sys.executable, "-m", "engine.cli", *args],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )


@pytest.mark.parametrize(
    ("start", "filling", "words"),
    [
        (b"", b"\0", "line 1: longer than 67108864 bytes"),
        (b"trace", b"\0", "longer than 67108864 bytes"),
        (b"trace", b'{"type":"keyframe","seq":-1,"step":-1,"time":0.0,"blocks":[],"sequences":[],'
         b'"requests":[],"totals":{' + 4000 * b" " + b"}}\n",
         "expands to more than 8,000 times its size"),
        (b"trace", b"[0,0,0,0],", "longer than 67108864 bytes"),
    ],
    ids=["zeros", "zeros after a header", "records without end", "rows without end"],
)  # fmt: skip
def test_a_file_that_expands_to_gigabytes_is_refused_in_bounded_memory(
    good, tmp_path, start, filling, words
):
    path = tmp_path / "bomb.jsonl.zst"
    if start:
        lines = pyzstd.ZstdFile(good).read().splitlines(keepends=True)
        start = b"".join(lines[:2])
        if filling.startswith(b"["):
            start += b'{"type":"keyframe","seq":-1,"step":-1,"time":0.0,"blocks":['
    assert write_bomb(path, start, filling) < 1_000_000
    done = run_limited("check", str(path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert words in line
