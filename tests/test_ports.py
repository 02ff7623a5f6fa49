"""Ports of this machine."""

import socket

import pytest

from tcl.errors import BadInput
from tcl.ports import HOST, free_port, require_free


def test_require_free_refuses_a_port_only_while_somebody_listens() -> None:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen()
        port = listening.getsockname()[1]
        with pytest.raises(BadInput, match=f"port {port} is taken: choose another"):
            require_free(port, "choose another")
    require_free(free_port(), "")
