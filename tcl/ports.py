"""Ports of this machine on the loopback interface."""

import socket

from tcl.errors import BadInput

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def require_free(port: int, instead: str) -> None:
    """Check that a server may listen on a port.

    Parameters
    ----------
    port
        The port.
    instead
        What to do when it may not.

    Raises
    ------
    BadInput
        When somebody listens there, or this user may not.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            raise BadInput(f"port {port} is not for this user: {instead}") from None
        except OSError:
            raise BadInput(f"port {port} is taken: {instead}") from None
