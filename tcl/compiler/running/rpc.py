"""Sessions on boards behind a TVM RPC tracker."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any

from tcl.errors import DeviceLost

_TRACKER_SECONDS = 3.0
_GRACE_SECONDS = 5
SESSION_ENDED = "code=kShutdown"
"""Sign, in a message, that the process on the board is gone."""
BIG_CORES = 1
"""TVM's word for the cores to prefer."""


def open_session(rpc: Mapping[str, Any], seconds: float) -> Any:
    """Open a session on a free board.

    Parameters
    ----------
    rpc
        ``host`` and ``port`` of the tracker, and the board's ``key``.
    seconds
        What the session may take; the board itself ends one that outlives this.

    Raises
    ------
    DeviceLost
        When the tracker does not answer or has no free server with the key.
    """
    try:
        tracker = _free_at(rpc, _TRACKER_SECONDS)
        return tracker.request(rpc["key"], session_timeout=int(seconds) + _GRACE_SECONDS, max_retry=1)
    except (OSError, RuntimeError) as error:
        raise DeviceLost(f"no RPC session through the tracker at {_address(rpc)} ({error})") from None


def await_board(rpc: Mapping[str, Any]) -> None:
    """Wait until a board has ended its last session, also one that it has to end by force.

    Raises
    ------
    DeviceLost
        When it does not come back.
    """
    try:
        _free_at(rpc, _TRACKER_SECONDS + _GRACE_SECONDS)
    except (OSError, RuntimeError) as error:
        raise DeviceLost(f"the tracker at {_address(rpc)} does not answer ({error})") from None


def _free_at(rpc: Mapping[str, Any], seconds: float) -> Any:
    """The tracker, once it has a free server; asking it for a session without one would wait for ever."""
    from tvm.rpc import connect_tracker

    socket.create_connection((rpc["host"], rpc["port"]), _TRACKER_SECONDS).close()
    tracker = connect_tracker(rpc["host"], rpc["port"])
    end = time.monotonic() + seconds
    while not tracker.summary()["queue_info"].get(rpc["key"], {"free": 0})["free"]:
        if time.monotonic() > end:
            raise DeviceLost(f"the tracker at {_address(rpc)} has no free server with the key {rpc['key']!r}")
        time.sleep(0.05)
    return tracker


def _address(rpc: Mapping[str, Any]) -> str:
    return f"{rpc['host']}:{rpc['port']}"
