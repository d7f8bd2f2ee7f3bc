"""The Streamlit script: page settings and the list of pages."""

import streamlit as st

from dashboard.icon import ICON
from dashboard.views.pool import pool_page

# A Material icon would be fetched from Google for the browser's tab; in the page it is local.
st.set_page_config(page_title="Glasspool", page_icon=ICON, layout="wide")
st.navigation(
    [st.Page(pool_page, title="Pool", icon=":material/grid_view:", default=True)], position="top"
).run()
