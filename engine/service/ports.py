"""Is a port free? Asked before the slow part of a start."""

import socket

from engine.core.config import ConfigError


def check_port(host: str, port: int, option: str) -> None:
    """Raises ConfigError where the port can't be had; the message names `option` as the remedy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} on {host} can't be used ({error.strerror}): "
                f"choose another with {option}"
            ) from None
