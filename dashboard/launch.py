"""How the dashboard's server process is started. What never varies is in .streamlit/config.toml."""

import os
import sys
from pathlib import Path

from dashboard.source import SOURCE_VARIABLE, parse_source, source_text


def launch_command(
    source: str, host: str = "127.0.0.1", port: int = 8501
) -> tuple[list[str], dict[str, str]]:
    """The argv of the server, and what to add to its environment.

    `source` is an engine's `http://host:port` or the path of a trace. Raises SourceError.
    """
    here = Path(__file__).resolve().parent
    argv = [
        *(sys.executable, "-m", "streamlit", "run", str(here / "asgi.py")),
        *("--server.address", host),
        *("--server.port", str(port)),
    ]
    # `streamlit run` puts the script's folder on the path, but our imports start one level above.
    path = os.pathsep.join(filter(None, [str(here.parent), os.environ.get("PYTHONPATH")]))
    return argv, {SOURCE_VARIABLE: source_text(parse_source(source)), "PYTHONPATH": path}
