"""Traces for other tools: Perfetto's timeline, Parquet and CSV tables. Only engine.events is needed.

tables.py     rows of the tables steps, events and requests
table_files.py  these as Parquet or CSV files
perfetto.py   a timeline in the Trace Event format

All of it streams: a long trace needs no more memory than a short one.
"""
