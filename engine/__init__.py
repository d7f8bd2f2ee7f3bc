"""The Glasspool engine: event contract, core, model, service and command line."""

__version__ = "0.1.0"
