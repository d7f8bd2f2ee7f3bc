"""Monitoring of Glasspool engines: one spec in Python, from which every committed file is built.

`spec` says what is watched; `build` writes the files. Imports nothing else of Glasspool: the names
of the metrics are all that the two share.
"""
