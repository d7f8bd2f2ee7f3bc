"""How the dashboard's server process is started. What never varies is in .streamlit/config.toml."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboard.source import SOURCE_VARIABLE, parse_source, source_text


def launch_command(
    sources: str | Sequence[str], host: str = "127.0.0.1", port: int = 8501
) -> tuple[list[str], dict[str, str]]:
    """The argv of the server, and what to add to its environment.

    Each source is an engine's `http://host:port` or the path of a trace; none is allowed, and the
    first one is shown first. Raises SourceError.
    """
    given = [sources] if isinstance(sources, str) else sources
    texts = [source_text(parse_source(source)) for source in given]
    here = Path(__file__).resolve().parent
    argv = [
        *(sys.executable, "-m", "streamlit", "run", str(here / "asgi.py")),
        *("--server.address", host),
        *("--server.port", str(port)),
    ]
    # `streamlit run` puts the script's folder on the path, but our imports start one level above.
    path = os.pathsep.join(filter(None, [str(here.parent), os.environ.get("PYTHONPATH")]))
    return argv, {SOURCE_VARIABLE: "\n".join(texts), "PYTHONPATH": path}
