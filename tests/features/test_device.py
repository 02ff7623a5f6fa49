"""Device descriptors."""

import numpy as np

from tcl.devices.device import Device
from tcl.features.device import DEVICE_WIDTH, device_descriptor


def cpu(isa: str, mcpu: str, bits: int, cores: int = 2) -> Device:
    facts = {"isa": isa, "vector_bits": bits, "l1d_bytes": 32768, "cores": cores}
    return Device("d", {"kind": "llvm", "mcpu": mcpu, "num-cores": cores}, facts=facts)


def test_descriptors_differ_when_instruction_sets_or_cores_do() -> None:
    devices = [
        cpu("avx512", "znver4", 512),
        cpu("avx2", "x86-64-v3", 256),
        cpu("sse42", "x86-64-v2", 128, 1),
        Device("k80", {"kind": "cuda"}, facts={"sm_count": 13}),
        Device("v100", {"kind": "cuda"}, facts={"sm_count": 80}),
        Device("mi50", {"kind": "rocm"}),
    ]
    vectors = [device_descriptor(device) for device in devices]
    assert len({vector.tobytes() for vector in vectors}) == len(devices)
    for vector in vectors:
        assert vector.shape == (DEVICE_WIDTH,) and vector.dtype == np.float32
        assert np.isfinite(vector).all() and vector.min() >= 0 and vector.max() <= 2
        assert vector[0] + vector[1] == 1


def test_unusable_facts_count_as_unknown() -> None:
    facts = {"flops_per_second": "many", "warp_size": -1, "registers_per_block": None}
    strange = Device("d", {"kind": "cuda"}, facts=facts)
    assert (device_descriptor(strange) == device_descriptor(Device("d", {"kind": "cuda"}))).all()
