"""Length-prefixed JSON messages over a stream socket: nothing a worker sends can run code in the engine."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

_HEADER = struct.Struct(">I")


class Channel:
    """One end of a connection that carries JSON objects.

    `receive` returns None when the other end is gone, also in the middle of a message.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def fileno(self) -> int:
        """Return the descriptor, so that selectors can wait for the channel."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        Raises
        ------
        OSError
            When the other end is gone.
        """
        data = json.dumps(message).encode()
        self._socket.sendall(_HEADER.pack(len(data)) + data)

    def receive(self) -> dict[str, Any] | None:
        """Wait for the next message; None when the other end is gone."""
        header = self._read(_HEADER.size)
        data = header and self._read(_HEADER.unpack(header)[0])
        return json.loads(data) if data else None

    def _read(self, size: int) -> bytes | None:
        parts = []
        while size:
            try:
                part = self._socket.recv(min(size, 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
