"""The pages. Not called `pages`: Streamlit would take them for pages of its own making."""
