"""A small HTTP server on loopback that MLflow's webhook tells of promotions."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tcl.console import note
from tcl.errors import BadInput, WorkFailed
from tcl.webhook.signature import Refused, Verifier

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

HOST, PATH = "127.0.0.1", "/mlflow"
LARGEST_BODY = 64 * 1024
_BODY_SECONDS = 10.0
_START_SECONDS = 30.0


@contextmanager
def receiving(verifier: Verifier, promoted: Callable[[str, str, str], None], port: int) -> Iterator[str]:
    """Receive deliveries in a thread during the block.

    Parameters
    ----------
    verifier
        Which deliveries to accept.
    promoted
        Called with registered model, alias and version when an alias was set. It must return soon; when it raises,
        MLflow is asked to try again.
    port
        Where to listen; 0 takes a free port.

    Yields
    ------
    str
        The address for MLflow.

    Raises
    ------
    BadInput
        When the port is taken.
    """
    import uvicorn

    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # before that another receiver could bind the same port
    except OSError as error:
        listening.close()
        raise BadInput(
            f"port {port} for MLflow's webhook cannot be used ({error}); set promotion.webhook_port to another"
        ) from None
    config = uvicorn.Config(
        application(verifier, promoted),
        log_level="warning",
        access_log=False,
        lifespan="off",
        limit_concurrency=32,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), name="webhook", daemon=True)
    thread.start()
    try:
        end = time.monotonic() + _START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > end:
                raise WorkFailed("the receiver of MLflow's webhook did not start")
            time.sleep(0.02)
        yield f"http://{HOST}:{listening.getsockname()[1]}{PATH}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def application(verifier: Verifier, promoted: Callable[[str, str, str], None]) -> "Starlette":
    """Return the application: one route, which takes nothing but signed POST requests."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    async def deliver(request: "Request") -> Response:
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await _body(request)
            delivery = await asyncio.to_thread(verifier.accept, request.headers, body)
            alias = _alias(body)
        except TimeoutError:
            return PlainTextResponse("the body did not come\n", 408)
        except Refused as error:
            return PlainTextResponse(f"{error}\n", error.status)
        if alias is None:
            return Response(status_code=204)
        try:
            await asyncio.to_thread(promoted, *alias)
        except Exception as error:
            note(f"a promotion could not be followed at once: {error}")
            await asyncio.to_thread(verifier.forget, delivery)
            return PlainTextResponse("try again later\n", 503)
        return Response(status_code=202)

    return Starlette(routes=[Route(PATH, deliver, methods=["POST"])])


async def _body(request: "Request") -> bytes:
    """The body, if it is small; a larger one is not read to its end."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise Refused(413, f"more than {LARGEST_BODY} bytes")
    return body


def _alias(body: bytes) -> tuple[str, str, str] | None:
    """(registered model, alias, version) of an alias that was set; None for other events."""
    try:
        event: Any = json.loads(body)
        if (event["entity"], event["action"]) != ("model_version_alias", "created"):
            return None
        data = event["data"]
        return str(data["name"]), str(data["alias"]), str(data["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused(400, "the body is no event of MLflow") from None
