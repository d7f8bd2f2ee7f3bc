"""What the dashboard watches: an engine's address or a trace file."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

SOURCE_VARIABLE = "GLASSPOOL_SOURCE"
"""Environment variable that carries the source from the launcher to the server process."""


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


def source_from_environment() -> Source:
    """The source that the launcher handed over. Raises SourceError where there is none."""
    text = os.environ.get(SOURCE_VARIABLE)
    if not text:
        raise SourceError(
            f"no source: start with `glasspool dashboard --engine URL` or `--trace FILE`, "
            f"or set {SOURCE_VARIABLE}"
        )
    return parse_source(text)
