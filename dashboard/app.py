"""The Streamlit script: page settings, the list of pages, and what stands above each of them.

To add a page: a module in dashboard/views with a function, and a line in PAGES. What stands above a
page about a source (source, player, banners) is drawn here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from dashboard.icon import ICON
from dashboard.links import START, offer
from dashboard.session import Session
from dashboard.shell import narrow_margins, top_of_page
from dashboard.views.capacity import capacity_page
from dashboard.views.compare import compare_page
from dashboard.views.lab import lab_page
from dashboard.views.lessons import lessons_page
from dashboard.views.pool import pool_page
from dashboard.views.preemptions import preemptions_page
from dashboard.views.requests import requests_page
from dashboard.views.timeline import timeline_page


@dataclass(frozen=True)
class SourcePage:
    """A page about a source: the bar with source and player stands above it, the pool if asked for.

    `title`, `path` (in the address) and `icon` are those of the navigation.
    """

    title: str
    path: str
    icon: str
    draw: Callable[[Session], None]
    with_pool: bool = False

    def __call__(self) -> None:
        session = top_of_page(with_pool=self.with_pool)
        if session is not None:
            self.draw(session)


@dataclass(frozen=True)
class PlainPage:
    """A page that needs no source: nothing stands above it."""

    title: str
    path: str
    icon: str
    draw: Callable[[], None]

    def __call__(self) -> None:
        self.draw()


PAGES: list[SourcePage | PlainPage] = [
    SourcePage("Pool", START, ":material/grid_view:", pool_page, with_pool=True),
    SourcePage("Requests", "requests", ":material/list_alt:", requests_page),
    SourcePage("Timeline", "timeline", ":material/timeline:", timeline_page),
    SourcePage("Preemptions", "preemptions", ":material/eject:", preemptions_page),
    SourcePage("Compare", "compare", ":material/compare_arrows:", compare_page),
    PlainPage("Lessons", "lessons", ":material/school:", lessons_page),
    PlainPage("Lab", "lab", ":material/science:", lab_page),
    PlainPage("Capacity", "capacity", ":material/straighten:", capacity_page),
]
"""In the order of the navigation. The first is the start page."""

# A Material icon would be fetched from Google for the browser's tab; in the page it is local.
st.set_page_config(page_title="Glasspool", page_icon=ICON, layout="wide")
pages = {
    page.path: st.Page(
        page.__call__,
        title=page.title,
        icon=page.icon,
        url_path=page.path,
        default=page is PAGES[0],
    )
    for page in PAGES
}
offer(pages)
narrow_margins()
st.navigation(list(pages.values()), position="top").run()
