"""What the cost model is told about a device."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tcl.devices.device import Device

DEVICE_WIDTH = 24
"""Values of a device descriptor (D)."""

_GPU_KINDS = {"cuda", "rocm", "vulkan", "opencl", "metal", "webgpu"}
_ISA_LEVELS = (
    ("sse", "x86-64", "x86-64-v2"),
    ("avx2", "avx", "x86-64-v3"),
    ("avx512", "x86-64-v4"),
    ("neon", "sve", "aarch64", "arm"),
)
_NUMBERS = (  # fact or target attribute, scale of its log2
    (("vector_bits",), 8),
    (("l1d_bytes",), 16),
    (("l2_bytes",), 20),
    (("l3_bytes",), 24),
    (("clock_hz",), 32),
    (("memory_bytes_per_second",), 36),
    (("flops_per_second",), 40),
    (("sm_count", "multiprocessors"), 6),
    (("max_threads_per_block", "max_num_threads"), 10),
    (("max_shared_memory_per_block", "shared_memory_bytes"), 16),
    (("registers_per_block",), 16),
    (("thread_warp_size", "warp_size"), 6),
)


def device_descriptor(device: Device) -> np.ndarray:
    """A device as float32[DEVICE_WIDTH], scaled to about [0, 2]; what is not known is 0.

    Slots: CPU, GPU, NVIDIA, AMD; cores; the instruction set's family (4); then facts or target attributes on
    a logarithmic scale, in the order of their table. Facts come before the target's attributes.
    """
    known: dict[str, Any] = {**device.target, **device.facts}
    kind = str(device.target.get("kind", ""))
    is_gpu = kind in _GPU_KINDS
    isa = f"{known.get('isa', '')} {known.get('mcpu', '')}".lower()
    families = [float(any(word in isa for word in level)) for level in _ISA_LEVELS]
    if families[2]:
        families[1] = 0.0
    values = [
        float(not is_gpu),
        float(is_gpu),
        float(kind == "cuda"),
        float(kind == "rocm"),
        0.0 if is_gpu else log2(max(device.num_cores, 1)) / 4,
        *families,
    ]
    for names, scale in _NUMBERS:
        number = next((known[name] for name in names if name in known), 0)
        usable = isinstance(number, (int, float)) and 1 <= number < 2**62
        values.append(log2(number) / scale if usable else 0.0)
    values += [0.0] * (DEVICE_WIDTH - len(values))
    return np.array(values, np.float32)
