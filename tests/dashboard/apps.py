"""The dashboard's script in Streamlit's own test runner, on any of its pages."""

from pathlib import Path

from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

import dashboard
from dashboard.session import Session
from dashboard.sessions import TOKEN_KEY, sessions

SCRIPT = Path(dashboard.__file__).with_name("app.py")


def page_app(path: str, **query: str) -> AppTest:
    """The page at `path`, run once with these query parameters."""
    app = AppTest.from_file(str(SCRIPT))
    app.query_params.update(query)
    # The test runner itself can only switch to pages that are files, and ours are functions.
    app._page_hash = calc_hash(path)
    app.run(timeout=30)
    assert not app.exception, app.exception[0].stack_trace
    return app


def session_of(app: AppTest) -> Session:
    return sessions().get(app.session_state[TOKEN_KEY])


def texts(app: AppTest) -> str:
    """Everything that the page says in words."""
    parts = (app.markdown, app.caption, app.info, app.warning, app.success, app.error)
    return "\n".join(element.value for part in parts for element in part)
