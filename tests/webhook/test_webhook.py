"""The receiver as MLflow and an attacker on the same machine meet it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from mlflow.webhooks.delivery import _generate_hmac_signature

from tcl.errors import BadInput
from tcl.webhook.receiver import LARGEST_BODY, receiving
from tcl.webhook.signature import DELIVERY, SIGNATURE, TIMESTAMP, TOLERANCE_SECONDS, Refused, Verifier, sign

SECRET = "a secret of the test"


def event(**data: str) -> str:
    given = {"name": "tcl-cost-dev", "alias": "champion", "version": "2"} | data
    return json.dumps({"entity": "model_version_alias", "action": "created", "data": given})


def signed(body: str, delivery: str, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    """Headers as MLflow's own code makes them."""
    timestamp = str(int(time.time() if at is None else at))
    signature = _generate_hmac_signature(secret, delivery, timestamp, body)
    return {DELIVERY: delivery, TIMESTAMP: timestamp, SIGNATURE: signature}


class Receiver:
    def __init__(self, memory: Path) -> None:
        self.memory, self.url = memory, ""
        self.told: list[tuple[str, ...]] = []
        self.broken = False

    def promoted(self, *event: str) -> None:
        if self.broken:
            raise RuntimeError("Prefect is away")
        self.told.append(event)

    def post(self, body: str | bytes, headers: dict[str, str]) -> int:
        return httpx.post(self.url, content=body, headers=headers).status_code


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path_factory.mktemp("webhook") / "deliveries.json")
    with receiving(Verifier(SECRET, receiver.memory), receiver.promoted, 0) as receiver.url:
        yield receiver


@pytest.fixture
def receiver(running: Receiver) -> Receiver:
    running.told.clear()
    running.broken = False
    return running


def test_delivery_is_told_when_mlflow_signed_it(receiver: Receiver):
    assert receiver.post(event(), signed(event(), "first")) == 202
    assert receiver.told == [("tcl-cost-dev", "champion", "2")]


def test_delivery_is_refused_when_it_comes_again(receiver: Receiver):
    headers = signed(event(), "twice")
    assert [receiver.post(event(), headers) for _ in range(3)] == [202, 409, 409]
    assert len(receiver.told) == 1


def test_delivery_is_refused_when_it_comes_again_after_a_restart(tmp_path: Path):
    headers = signed("{}", "once")
    Verifier(SECRET, tmp_path / "memory.json").accept(headers, b"{}")
    with pytest.raises(Refused) as refused:
        Verifier(SECRET, tmp_path / "memory.json").accept(headers, b"{}")
    assert refused.value.status == 409


Forge = Callable[[dict[str, str]], dict[str, str]]


@pytest.mark.parametrize(
    "forge",
    [
        lambda headers: {},
        lambda headers: headers | {SIGNATURE: ""},
        lambda headers: headers | {SIGNATURE: "v1,AAAA"},
        lambda headers: headers | {SIGNATURE: headers[SIGNATURE].replace("v1,", "v2,")},
        lambda headers: headers | {DELIVERY: "another"},
        lambda headers: headers | {TIMESTAMP: str(int(headers[TIMESTAMP]) + 1)},
        lambda headers: signed(event(), "forged", secret="guessed"),
        lambda headers: signed(event(version="3"), "forged"),
        lambda headers: signed(event(), ""),
        lambda headers: signed(event(), "x" * 201),
        lambda headers: signed(event(), "old", at=time.time() - TOLERANCE_SECONDS - 5),
        lambda headers: signed(event(), "future", at=time.time() + TOLERANCE_SECONDS + 5),
    ],
    ids=[
        "no headers",
        "no signature",
        "wrong signature",
        "other scheme",
        "other id",
        "other time",
        "other secret",
        "other body",
        "no id",
        "long id",
        "stale",
        "from the future",
    ],
)
def test_delivery_is_refused_when_it_is_forged_or_stale(receiver: Receiver, forge: Forge):
    assert receiver.post(event(), forge(signed(event(), "forged"))) == 401
    assert receiver.told == []


@pytest.mark.parametrize("timestamp", ["", "now", "1e9", "-1", "²"])
def test_delivery_is_refused_when_its_signed_timestamp_is_no_number(tmp_path: Path, timestamp: str):
    headers = {DELIVERY: "id", TIMESTAMP: timestamp, SIGNATURE: sign(SECRET, "id", timestamp, b"")}
    with pytest.raises(Refused):
        Verifier(SECRET, tmp_path / "memory.json").accept(headers, b"")


def test_delivery_is_refused_when_it_is_large(receiver: Receiver):
    body = "x" * (LARGEST_BODY + 1)
    assert receiver.post(body, signed(body, "large")) == 413


def test_delivery_is_refused_when_it_grows_large_without_saying_its_length(receiver: Receiver):
    def endless() -> Iterator[bytes]:
        for _ in range(1000):
            yield b"x" * 65536

    with suppress(httpx.TransportError):  # the connection may be closed before all was sent
        assert httpx.post(receiver.url, content=endless(), headers=signed("", "endless")).status_code == 413
    assert receiver.told == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_post_is_taken(receiver: Receiver, method: str):
    assert httpx.request(method, receiver.url).status_code == 405


def test_other_paths_are_not_found(receiver: Receiver):
    assert httpx.post(receiver.url.replace("/mlflow", "/")).status_code == 404


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", "null", '{"entity": "model_version_alias", "action": "created"}']
)
def test_body_is_refused_when_it_is_no_event(receiver: Receiver, body: str):
    assert receiver.post(body, signed(body, f"no-event-{body.encode().hex()}")) == 400


def test_other_events_are_ignored(receiver: Receiver):
    body = json.dumps({"entity": "registered_model", "action": "created", "data": {"name": "x"}})
    assert receiver.post(body, signed(body, "other event")) == 204
    assert receiver.told == []


def test_mlflow_may_try_again_when_the_promotion_could_not_be_passed_on(receiver: Receiver):
    receiver.broken = True
    headers = signed(event(), "again")
    assert receiver.post(event(), headers) == 503
    receiver.broken = False
    assert receiver.post(event(), headers) == 202
    assert len(receiver.told) == 1


def test_receiver_listens_on_loopback_only(receiver: Receiver):
    assert receiver.url.startswith("http://127.0.0.1:")
    port = int(receiver.url.rsplit(":", 1)[1].split("/")[0])
    listening = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    assert listening == [f"0100007F:{port:04X}"]


def test_receiver_says_so_when_its_port_is_taken(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(BadInput, match=f"port {port} for MLflow's webhook"),
            receiving(Verifier(SECRET, tmp_path / "memory.json"), lambda *_: None, port),
        ):
            pass
