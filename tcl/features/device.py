"""What the cost model is told about a device."""

from __future__ import annotations

DEVICE_WIDTH = 24
"""Values of a device descriptor (D)."""
