"""Recognises this host: CPU model, instruction set, usable cores and caches, as a device with a TVM target.

Nothing here needs TVM: the names are LLVM's CPU names, chosen by vendor, family and model, and only when the
CPU shows every feature that the name lets LLVM use (a hypervisor may hide some). Otherwise the level of the
instruction set decides (x86-64-v2, -v3, -v4; generic).
"""

import os
import platform
import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tcl.devices.device import Device, cpu_name, is_other_cpu
from tcl.errors import BadInput

VECTOR_BITS = {"avx512": 512, "avx2": 256, "sse42": 128, "neon": 128}
"""Width of the widest vector register of each instruction set level."""

_X86_LEVELS = (  # best first: level, LLVM's CPU name, the flags of /proc/cpuinfo that it needs
    ("avx512", "x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
    ("avx2", "x86-64-v3", frozenset({"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"})),
    ("sse42", "x86-64-v2", frozenset({"sse4_1", "sse4_2", "ssse3", "popcnt", "cx16"})),
)
_VNNI = frozenset({"avx512_vnni"})
_ICELAKE = _VNNI | {"avx512vbmi", "avx512_vbmi2", "avx512ifma", "avx512_bitalg", "avx512_vpopcntdq"}
_X86_CPUS: tuple[tuple[str, str, int, Container[int], str, frozenset[str]], ...] = (
    # LLVM's CPU name, vendor, family, models, level, further flags; the first that fits wins
    ("znver5", "AuthenticAMD", 26, range(0x100), "avx512", _ICELAKE | {"avx512_bf16", "avx_vnni"}),
    ("znver4", "AuthenticAMD", 25, {*range(0x10, 0x20), *range(0x60, 0x80), *range(0xA0, 0xB0)}, "avx512",
     _ICELAKE | {"avx512_bf16"}),
    ("znver3", "AuthenticAMD", 25, range(0x100), "avx2", frozenset({"vaes", "vpclmulqdq"})),
    ("znver2", "AuthenticAMD", 23, range(0x30, 0x100), "avx2", frozenset({"clwb", "sha_ni"})),
    ("znver1", "AuthenticAMD", 23, range(0x100), "avx2", frozenset({"sha_ni"})),
    ("sapphirerapids", "GenuineIntel", 6, {0x8F, 0xCF}, "avx512", _ICELAKE | {"avx512_fp16", "avx512_bf16"}),
    ("graniterapids", "GenuineIntel", 6, {0xAD, 0xAE}, "avx512", _ICELAKE | {"avx512_fp16", "avx512_bf16"}),
    ("icelake-server", "GenuineIntel", 6, {0x6A, 0x6C}, "avx512", _ICELAKE),
    ("icelake-client", "GenuineIntel", 6, {0x7D, 0x7E, 0xA7}, "avx512", _ICELAKE),
    ("tigerlake", "GenuineIntel", 6, {0x8C, 0x8D}, "avx512", _ICELAKE | {"avx512_vp2intersect"}),
    ("cooperlake", "GenuineIntel", 6, {0x55}, "avx512", _VNNI | {"avx512_bf16"}),
    ("cascadelake", "GenuineIntel", 6, {0x55}, "avx512", _VNNI),
    ("skylake-avx512", "GenuineIntel", 6, {0x55}, "avx512", frozenset()),
    ("alderlake", "GenuineIntel", 6, {0x97, 0x9A, 0xB7, 0xBA, 0xBF}, "avx2", frozenset({"avx_vnni", "vaes"})),
    ("skylake", "GenuineIntel", 6, {0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6}, "avx2", frozenset({"adx"})),
    ("broadwell", "GenuineIntel", 6, {0x3D, 0x47, 0x4F, 0x56}, "avx2", frozenset({"adx"})),
    ("haswell", "GenuineIntel", 6, {0x3C, 0x3F, 0x45, 0x46}, "avx2", frozenset()),
)  # fmt: skip
_ARM_CPUS = {  # Arm's own parts (implementer 0x41)
    0xD03: "cortex-a53", 0xD04: "cortex-a35", 0xD05: "cortex-a55", 0xD07: "cortex-a57", 0xD08: "cortex-a72",
    0xD09: "cortex-a73", 0xD0A: "cortex-a75", 0xD0B: "cortex-a76", 0xD0C: "neoverse-n1", 0xD0D: "cortex-a77",
    0xD40: "neoverse-v1", 0xD41: "cortex-a78", 0xD44: "cortex-x1", 0xD46: "cortex-a510", 0xD47: "cortex-a710",
    0xD48: "cortex-x2", 0xD49: "neoverse-n2", 0xD4D: "cortex-a715", 0xD4E: "cortex-x3", 0xD4F: "neoverse-v2",
}  # fmt: skip
_CACHES = {("1", "Data"): "l1d_bytes", ("2", "Unified"): "l2_bytes", ("3", "Unified"): "l3_bytes"}


def detect_host(name: str | None = None) -> Device:
    """Describe the machine that this process runs on.

    Parameters
    ----------
    name
        The device's name; None: "<mcpu>-<cores>c", e.g. "znver4-2c".
    """
    model, isa, mcpu = _recognise_host()
    cores = usable_cores()
    facts = {
        "cpu_model": model,
        "cpu": mcpu,
        "isa": isa,
        "cores": cores,
        **read_caches(Path("/sys/devices/system/cpu/cpu0/cache")),
    }
    if isa in VECTOR_BITS:
        facts["vector_bits"] = VECTOR_BITS[isa]
    return Device(name or f"{mcpu}-{cores}c", {"kind": "llvm", "mcpu": mcpu, "num-cores": cores}, facts=facts)


def _own_cpu() -> dict[str, str]:
    """Return what `detect_host` records of this machine's CPU."""
    model, isa, mcpu = _recognise_host()
    return {"cpu_model": model, "cpu": mcpu, "isa": isa}


def _recognise_host() -> tuple[str, str, str]:
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(errors="replace") if cpuinfo.exists() else ""
    return recognise_cpu(text, platform.machine(), platform.processor())


def machine_of(target: Mapping[str, Any]) -> str:
    """Return the kind of processor that a target's host code is for, e.g. x86_64, aarch64 or riscv64."""
    machine = str(target.get("mtriple") or platform.machine()).split("-")[0].lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def is_gpu(target: Mapping[str, Any]) -> bool:
    """Whether a target's programs run on a GPU."""
    return target["kind"] == "cuda"


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU and its driver."""
    return Path("/dev/nvidiactl").exists()


def is_reachable(device: Device) -> bool:
    """Whether programs for a device can run from here: on this machine, or over RPC."""
    return why_unreachable(device) is None


def check_reachable(device: Device) -> None:
    """Refuse to measure on a device that is not at hand: another machine or a GPU, and no RPC tracker.

    Raises
    ------
    BadInput
        Then.
    """
    reason = why_unreachable(device)
    if reason is not None:
        raise BadInput(
            f"{device.name} is {reason}, so nothing can be measured on it from here; record how it is reached"
            " (tcl device add ... --rpc HOST:PORT --key KEY), or compile with --trials 0"
        )


def on_this_host(device: Device) -> Device:
    """Note this machine's CPU in a device that is reached without RPC, where its programs can run here."""
    if device.rpc is not None or is_gpu(device.target) or not is_reachable(device):
        return device
    return replace(device, facts={**device.facts, **{key: _own_cpu()[key] for key in ("cpu_model", "cpu")}})


def why_unreachable(device: Device) -> str | None:
    """Return why a device's programs cannot run from here; None when they can.

    Where a fleet shares the device files, a device without RPC is one of several hosts: timings of another CPU must
    not be recorded under its name.
    """
    if device.rpc is not None:
        return None
    if machine_of(device.target) != machine_of({}):
        return f"a machine of kind {machine_of(device.target)} and this one is {machine_of({})}"
    if is_gpu(device.target):
        return None if has_gpu() else "a GPU and this machine has none"
    own = _own_cpu()
    if is_other_cpu(device.facts, own):
        return f"a machine with the CPU {cpu_name(device.facts)!r} and this one has {cpu_name(own)!r}"
    wanted = str(device.facts.get("isa"))
    if VECTOR_BITS.get(wanted, 0) > VECTOR_BITS.get(own["isa"], 0):
        return f"a machine with {wanted} and this one has {own['isa']}"
    if device.num_cores > usable_cores():
        return f"a machine with {device.num_cores} cores and this one has {usable_cores()}"
    return None


def builtin_variants(host: Device) -> list[Device]:
    """Return `host` and the weaker devices that the same machine can stand for, on x86.

    They are "<mcpu>-<cores>c-avx2" (AVX2 code on all cores) and "<mcpu>-1c-sse42" (SSE4.2 code on one core),
    as far as the host has these instructions.
    """
    levels = [level for level, _, _ in _X86_LEVELS]
    isa = host.facts.get("isa")
    if isa not in levels:
        return [host]
    variants = [host]
    for level, mcpu, cores in (("avx2", "x86-64-v3", host.num_cores), ("sse42", "x86-64-v2", 1)):
        if levels.index(level) >= levels.index(isa):
            name = f"{host.target['mcpu']}-{cores}c-{level}"
            target = {"kind": "llvm", "mcpu": mcpu, "num-cores": cores}
            facts = {**host.facts, "isa": level, "cores": cores, "vector_bits": VECTOR_BITS[level]}
            variants.append(replace(host, name=name, target=target, facts=facts))
    return variants


def recognise_cpu(cpuinfo: str, machine: str, processor: str = "") -> tuple[str, str, str]:
    """Return the CPU's model name, instruction set level and LLVM name.

    Parameters
    ----------
    cpuinfo
        The text of `/proc/cpuinfo`; empty where there is none (macOS).
    machine, processor
        `platform.machine()` and `platform.processor()`.

    Returns
    -------
    tuple[str, str, str]
        For example ("AMD EPYC", "avx512", "znver4"). The level is avx512, avx2, sse42, neon or generic.
    """
    processors = [
        {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        for block in re.split(r"\n\s*\n", cpuinfo)
    ]
    first = processors[0]
    if machine.lower() in ("x86_64", "amd64"):
        model = first.get("model name") or processor or machine
        return model, *_recognise_x86(first)
    if machine.lower() in ("aarch64", "arm64"):
        return _recognise_arm(processors, processor or machine)
    return first.get("model name") or processor or machine, "generic", "generic"


def _recognise_x86(cpu: Mapping[str, str]) -> tuple[str, str]:
    flags = set(cpu.get("flags", "").split())
    reached = {level: mcpu for level, mcpu, _ in _X86_LEVELS[_first_reached(flags) :]}
    family, model = (_number(cpu.get(key, ""), 10) for key in ("cpu family", "model"))
    for mcpu, vendor, its_family, models, level, needed in _X86_CPUS:
        same = cpu.get("vendor_id") == vendor and family == its_family and model in models
        if same and level in reached and needed <= flags:
            return next(iter(reached)), mcpu
    return next(iter(reached.items()), ("generic", "x86-64"))


def _number(text: str, base: int) -> int | None:
    try:
        return int(text, base)
    except ValueError:
        return None


def _first_reached(flags: set[str]) -> int:
    """Return the index of the best level that `flags` allow; a level needs the flags of those below it."""
    for index in range(len(_X86_LEVELS)):
        if all(needed <= flags for _, _, needed in _X86_LEVELS[index:]):
            return index
    return len(_X86_LEVELS)


def _recognise_arm(processors: list[dict[str, str]], name: str) -> tuple[str, str, str]:
    numbers = (
        _number(cpu.get("CPU part", ""), 16) for cpu in processors if cpu.get("CPU implementer") == "0x41"
    )
    parts = Counter(_ARM_CPUS[number] for number in numbers if number in _ARM_CPUS)
    if parts:
        mcpu = parts.most_common(1)[0][0]
        return mcpu, "neon", mcpu
    if platform.system() == "Darwin":
        return "Apple", "neon", "apple-m1"  # every later Apple core runs its code
    return name, "neon", "generic"


def read_caches(folder: Path) -> dict[str, int]:
    """Return l1d_bytes, l2_bytes and l3_bytes from a CPU's sysfs cache folder, as far as it tells them."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / item).read_text().strip() for item in ("level", "type", "size"))
        except OSError:
            continue
        match = re.fullmatch(r"(\d+)([KM]?)", size)
        if (level, kind) in _CACHES and match:
            found[_CACHES[level, kind]] = int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2]]
    return found


def usable_cores(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return how many cores this process may use: its affinity, cut by the quotas of its cgroups (v1, v2)."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quotas = [quota for folder in _own_cgroups(cgroups, own) if (quota := _quota(folder)) is not None]
    return max(1, min([cores, *map(int, quotas)]))


def _own_cgroups(cgroups: Path, own: Path) -> list[Path]:
    """Return the cgroup folders from the root to the process's own: each of them can limit it."""
    folders = [cgroups, cgroups / "cpu"]
    for line in own.read_text().splitlines() if own.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "cpu" in controllers.split(","):
            base = cgroups if controllers == "" else cgroups / "cpu"
            inside = base / path.lstrip("/")
            folders += [inside, *(parent for parent in inside.parents if parent.is_relative_to(base))]
    return folders


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{part}_us").read_text().strip() for part in ("quota", "period")
            )
        return float(quota) / float(period) if quota != "max" and float(quota) > 0 else None
    except (OSError, ValueError):
        return None
