"""Whether a delivery is MLflow's, is fresh, and has not been here before.

MLflow signs like Standard Webhooks: ``v1,`` and the base64 of HMAC-SHA256(secret, "<delivery id>.<seconds>.<body>");
id, seconds and signature come in headers. The secret is used as it is, not decoded.
"""

import base64
import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tcl.files import atomic_json

SIGNATURE, TIMESTAMP, DELIVERY = "x-mlflow-signature", "x-mlflow-timestamp", "x-mlflow-delivery-id"
TOLERANCE_SECONDS = 300.0
_LONGEST_ID = 200


class Refused(Exception):
    """A delivery that is not accepted: an HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def sign(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a delivery, as MLflow's header holds it."""
    signed = f"{delivery}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


class Verifier:
    """Checks deliveries and remembers those it accepted, also over a restart.

    Parameters
    ----------
    secret
        What MLflow signs with.
    memory
        File with the accepted deliveries of the last minutes.
    clock
        Seconds since the epoch.
    """

    def __init__(self, secret: str, memory: Path, clock: Callable[[], float] = time.time) -> None:
        self._secret, self._memory, self._clock = secret, memory, clock
        self._lock = threading.Lock()

    def accept(self, headers: Mapping[str, str], body: bytes) -> str:
        """Accept a delivery once and return its id.

        Parameters
        ----------
        headers
            By name, in small letters.
        body
            The delivery as received.

        Raises
        ------
        Refused
            401 when it is not signed with the secret, or is too old or from the future; 409 when it was here before.
        """
        delivery, timestamp = headers.get(DELIVERY, ""), headers.get(TIMESTAMP, "")
        expected = sign(self._secret, delivery, timestamp, body)
        given = headers.get(SIGNATURE, "")
        if not hmac.compare_digest(expected.encode(), given.encode()):
            raise Refused(401, "the signature does not fit")
        if not 0 < len(delivery) <= _LONGEST_ID or not re.fullmatch("[0-9]{1,20}", timestamp):
            raise Refused(401, "the delivery id or the timestamp is missing")
        now = self._clock()
        if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
            raise Refused(401, "the delivery is stale: check the clocks")
        with self._lock:
            seen = {
                known: when for known, when in self._seen().items() if now - when <= 2 * TOLERANCE_SECONDS
            }
            if delivery in seen:
                raise Refused(409, "the delivery was here before")
            atomic_json(self._memory, seen | {delivery: now})
        return delivery

    def forget(self, delivery: str) -> None:
        """Let a delivery come again, since what it should start could not be started."""
        with self._lock:
            seen = self._seen()
            seen.pop(delivery, None)
            atomic_json(self._memory, seen)

    def _seen(self) -> dict[str, float]:
        try:
            kept = dict(json.loads(self._memory.read_text(encoding="utf-8")))
            return {delivery: float(when) for delivery, when in kept.items()}
        except (OSError, ValueError, TypeError, RecursionError):
            return {}
