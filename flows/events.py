"""The event that a device has new records, and the trigger that waits for it."""

from prefect.events import DeploymentEventTrigger, emit_event
from prefect.events.worker import EventsWorker

_NEW_RECORDS = "tcl.records.new"
_RESOURCE = "tcl.device"


def announce(device: str, data_hash: str) -> None:
    """Tell Prefect that a dataset version holds new records of a device; returns when it is told."""
    emit_event(
        event=_NEW_RECORDS,
        resource={"prefect.resource.id": f"{_RESOURCE}.{device}", "prefect.resource.name": device},
        payload={"device": device, "data_hash": data_hash},
    )
    EventsWorker.instance().wait_until_empty()


def on_new_records() -> DeploymentEventTrigger:
    """Start a run for each event, with the event's device and hash as its parameters."""
    return DeploymentEventTrigger(
        name="new records of a device",
        expect={_NEW_RECORDS},
        match={"prefect.resource.id": f"{_RESOURCE}.*"},
        parameters={
            "device": "{{ event.payload.device }}",
            "data_hash": "{{ event.payload.data_hash }}",
        },
    )
