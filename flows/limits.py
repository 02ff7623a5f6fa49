"""Concurrency limits of one: they hold across all hosts that use a Prefect API, where lock files hold on one."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from prefect.client.orchestration import get_client
from prefect.concurrency.sync import concurrency
from prefect.exceptions import ObjectAlreadyExists

KNOWLEDGE_BASE = "tcl-knowledge-base"
_LEASE_SECONDS = 60.0  # after which the limit is free again when its holder was killed


def device_limit(device: str) -> str:
    """Name of the limit that keeps measurements on a device apart."""
    return f"tcl-device-{device}"


def ensure_limits(names: Iterable[str]) -> None:
    """Create the limits that Prefect does not have yet."""
    with get_client(sync_client=True) as client:
        for name in names:
            with suppress(ObjectAlreadyExists):  # another process was faster
                client.upsert_global_concurrency_limit_by_name(name, 1)


@contextmanager
def only_one(limit: str) -> Iterator[None]:
    """Wait until nobody else holds the limit, and hold it for the block; Prefect frees it when its holder dies."""
    ensure_limits([limit])  # a device may be younger than `tcl serve`
    # Hours of work must not end because Prefect could not be reached for a moment.
    with concurrency(
        limit,
        occupy=1,
        lease_duration=_LEASE_SECONDS,
        strict=True,
        raise_on_lease_renewal_failure=False,
    ):
        yield
