"""What a benchmark's report says of the machine that it ran on."""

from __future__ import annotations

import platform
from typing import Any


def machine() -> str:
    """The machine in a few words."""
    from tcl.devices.host import detect_host

    facts: dict[str, Any] = detect_host().facts
    return f"{facts.get('cpu_model', platform.processor())}, {facts.get('cores', '?')} cores"
