"""Links from one page to another, for views that only know each other's path."""

import streamlit as st

START = "pool"
"""The path of the start page, which Streamlit serves at the root: asgi.py leads there from here."""
_KEY = "glasspool-pages"


def offer(pages: dict[str, st.Page]) -> None:
    """Remember the pages of this run by their path."""
    st.session_state[_KEY] = pages


def page_link(path: str, label: str, icon: str, help: str) -> None:
    """A link to the page of that path; the session's moment and selection go along."""
    st.page_link(st.session_state[_KEY][path], label=label, icon=icon, help=help)


def go_to_page(path: str) -> None:
    """Leave this page for the one of that path."""
    st.switch_page(st.session_state[_KEY][path])
