"""What the dashboard watches: engines by address, traces by file; and which it may choose from."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

SOURCE_VARIABLE = "GLASSPOOL_SOURCE"
"""Environment variable that carries the sources from the launcher to the server, one a line."""
TRACE_SUFFIX = ".jsonl.zst"
DEMO_DATA = Path(__file__).resolve().parents[1] / "demo_data"
"""Recorded runs that a checkout of the project has."""
OVERVIEW = "smollm2-96-blocks.jsonl.zst"
"""The one of them that is shown first: a run of the demo."""


class SourceError(ValueError):
    """Neither an engine's address nor a readable file. One sentence with the remedy."""


@dataclass(frozen=True)
class EngineSource:
    """A live engine. `events_url` is its event stream, `name` what sentences call it."""

    url: str
    events_url: str

    @property
    def name(self) -> str:
        """The address without its scheme: Markdown would make a link of the whole."""
        return self.url.partition("://")[2]


@dataclass(frozen=True)
class TraceSource:
    """A recorded run on disk."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name


Source = EngineSource | TraceSource


def parse_source(text: str) -> Source:
    """`http(s)://host:port` is an engine, anything else a path. Raises SourceError."""
    parts = urlsplit(text)
    if parts.scheme in ("http", "https"):
        if not parts.netloc:
            raise SourceError(f"{text!r} names no host: give an engine as http://host:port")
        scheme = "wss" if parts.scheme == "https" else "ws"
        base = f"{parts.netloc}{parts.path.rstrip('/')}"
        return EngineSource(f"{parts.scheme}://{base}", f"{scheme}://{base}/v1/events")
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        raise SourceError(
            f"{text!r} is no trace file: give a .jsonl.zst file, or an engine as http://host:port"
        )
    return TraceSource(path)


def source_text(source: Source) -> str:
    """The text that parse_source turns into this source, whatever the working directory."""
    return source.url if isinstance(source, EngineSource) else str(source.path)


def sources_from_environment() -> list[Source]:
    """The sources that the launcher handed over, none perhaps. Raises SourceError."""
    lines = os.environ.get(SOURCE_VARIABLE, "").splitlines()
    return [parse_source(line) for line in lines if line]


class Catalog:
    """Every source that viewers may choose, by a name that is unique here and fits into a link.

    A browser names a source, never an address or a path: only what the launcher gave, the demo data
    and the files that somebody opened by hand can be watched.
    """

    def __init__(self, given: list[Source], demo_data: Path) -> None:
        self._sources: dict[str, Source] = {}
        for source in given:
            self.add(source)
        recorded = demo_data.glob(f"*{TRACE_SUFFIX}")
        for path in sorted(recorded, key=lambda path: (path.name != OVERVIEW, path.name)):
            self.add(TraceSource(path))

    @property
    def names(self) -> list[str]:
        """Given ones first, in the order given."""
        return list(self._sources)

    def __getitem__(self, name: str) -> Source:
        return self._sources[name]

    def add(self, source: Source) -> str:
        """Make a source known; gives its name."""
        for name, known in self._sources.items():
            if known == source:
                return name
        name, number = source.name, 2
        while name in self._sources:
            name, number = f"{source.name} ({number})", number + 1
        self._sources[name] = source
        return name

    def add_trace(self, text: str) -> str:
        """Make a trace file known that somebody typed. Raises SourceError."""
        if not text.endswith(TRACE_SUFFIX):
            raise SourceError(f"{text!r} is no trace: give the path of a {TRACE_SUFFIX} file")
        return self.add(parse_source(text))
