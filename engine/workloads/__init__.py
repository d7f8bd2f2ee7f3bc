"""Workloads: what clients ask of an engine."""
