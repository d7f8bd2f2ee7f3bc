"""Addresses that people type or keep: each leads to its page, at its moment, and nothing fails."""

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.dashboard.browser import CANVAS, chromium, needs_chromium, running_dashboard

pytestmark = needs_chromium
PAGES = ("requests", "timeline", "preemptions", "compare", "capacity")
WAIT = 60_000


def complaints(page: Page) -> list[str]:
    """What the browser's console will have said as an error, or a page as an exception.

    Streamlit looks for its base path below each page's own: those two answers of 404 are its way. So
    are Vega's warnings of scales without data: a chart is drawn once before its data is in.
    """
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "console",
        lambda line: (
            line.type == "error"
            and "/_stcore/" not in line.location.get("url", "")
            and said.append(line.text)
        ),
    )
    return said


def test_each_page_is_found_by_its_name_at_the_moment_of_its_link(
    small_trace: Path, tmp_path: Path
) -> None:
    with running_dashboard([str(small_trace)], tmp_path / "log.txt") as url, chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        said = complaints(page)
        page.goto(f"{url}/pool?seq=120&block=7")
        page.locator(f"{CANVAS}[data-seq='120']").wait_for(timeout=WAIT)
        page.locator(".panel", has_text="Block 7:").wait_for(timeout=WAIT)
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert re.fullmatch(rf"{re.escape(url)}/\?\S*seq=120\S*", page.url), page.url
        assert not said, said
        for path in PAGES:
            page.goto(f"{url}/{path}?seq=120")
            link = page.get_by_role("link", name=path.title(), exact=True)
            link.and_(page.locator("[aria-current=page]")).wait_for(timeout=WAIT)
            if path == "compare":  # it shows both runs whole; the player has the moment
                page.locator(".where", has_text="step 121,").wait_for(timeout=WAIT)
            else:
                page.get_by_text("as known at step 121,").wait_for(timeout=WAIT)
            assert page.get_by_test_id("stException").count() == 0
            assert not said, (path, said)
        page.close()
