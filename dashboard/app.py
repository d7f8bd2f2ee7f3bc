"""The Streamlit script: page settings, the list of pages, and what stands above each of them.

To add a page: a module in dashboard/views with a function that takes the Session, and a line in
PAGES. The bar with source, player and banners is drawn here, above the page.
"""

from collections.abc import Callable
from functools import partial

import streamlit as st

from dashboard.icon import ICON
from dashboard.links import offer
from dashboard.session import Session
from dashboard.shell import top_of_page
from dashboard.views.compare import compare_page
from dashboard.views.pool import pool_page
from dashboard.views.preemptions import preemptions_page
from dashboard.views.requests import requests_page
from dashboard.views.timeline import timeline_page

PAGES: list[tuple[str, str, str, Callable[[Session], None]]] = [
    ("Pool", "pool", ":material/grid_view:", pool_page),
    ("Requests", "requests", ":material/list_alt:", requests_page),
    ("Timeline", "timeline", ":material/timeline:", timeline_page),
    ("Preemptions", "preemptions", ":material/eject:", preemptions_page),
    ("Compare", "compare", ":material/compare_arrows:", compare_page),
]
"""Title, path in the address, icon, function. The first is the start page."""


def _page(path: str, draw: Callable[[Session], None]) -> None:
    session = top_of_page(with_pool=path == "pool")
    if session is not None:
        draw(session)


# A Material icon would be fetched from Google for the browser's tab; in the page it is local.
st.set_page_config(page_title="Glasspool", page_icon=ICON, layout="wide")
pages = {
    path: st.Page(
        partial(_page, path, draw),
        title=title,
        icon=icon,
        url_path=path,
        default=path == "pool",
    )
    for title, path, icon, draw in PAGES
}
offer(pages)
st.navigation(list(pages.values()), position="top").run()
