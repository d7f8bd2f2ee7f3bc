"""Simulation: the engine itself, with lengths that are given and a clock that a cost model moves."""
