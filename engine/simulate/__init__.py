"""Simulation: the real scheduler and pool on a made-up clock, far faster than life. No torch."""
