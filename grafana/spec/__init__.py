"""What is watched: metrics, signals, alerts, panels. Every number of them is in `parameters`."""
