"""The engine as a server: completions, the event stream, health and metrics."""
