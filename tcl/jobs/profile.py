"""The profile of a package: which of its kernels takes how long, and how near each is to the machine's peak."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.devices.host import is_gpu
from tcl.errors import BadInput
from tcl.jobs.tables import Table, duration

if TYPE_CHECKING:
    from tcl.compiler.packaging.manifest import TaskRow
    from tcl.compiler.running.profile import CallProfile, Profile


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a package, or the virtual machine's own work.

    Attributes
    ----------
    name, op
        The compiled function, and what it computes.
    calls
        In one run.
    seconds
        Of all these calls.
    share
        Of the sum over all kernels.
    flops_per_second
        None where the kernel computes nothing, only copies.
    peak_share
        `flops_per_second` over the machine's float32 peak; None for other element types.
    bytes_per_second
        Of its inputs and outputs.
    """

    name: str
    op: str
    calls: int
    seconds: float
    share: float
    flops_per_second: float | None
    peak_share: float | None
    bytes_per_second: float | None


@dataclass(frozen=True)
class ProfileReport:
    """Result of `profile_package`."""

    package: str
    kernels: tuple[KernelProfile, ...]
    run_seconds: float
    peak_flops: float
    threads: int

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {**asdict(self), "kernels": [asdict(kernel) for kernel in self.kernels]}

    def table(self) -> Table:
        """One row for each kernel, slowest first."""
        rows = [
            (
                kernel.name,
                kernel.op,
                kernel.calls,
                duration(kernel.seconds),
                f"{kernel.share:.1%}",
                _giga(kernel.flops_per_second),
                "-" if kernel.peak_share is None else f"{kernel.peak_share:.0%}",
                _giga(kernel.bytes_per_second),
            )
            for kernel in self.kernels
        ]
        columns = ("kernel", "kind", "calls", "time", "share", "GFLOP/s", "of peak", "GB/s")
        return Table(f"Profile of {self.package}", columns, rows)

    def lines(self) -> list[str]:
        """The whole run, and what the shares refer to."""
        kernels = sum(kernel.seconds for kernel in self.kernels)
        return [
            f"one run takes {duration(self.run_seconds)}; its kernels, timed one by one, {duration(kernels)}",
            f"peak: {self.peak_flops / 1e9:.0f} GFLOP/s, measured in the same process on {self.threads} threads",
        ]


def profile_package(folder: Path) -> ProfileReport:
    """Time each kernel of a package.

    Raises
    ------
    BadInput
        When the folder is no usable package.
    """
    from tcl.compiler.packaging.manifest import Manifest
    from tcl.compiler.running.profile import profile

    manifest = Manifest.read(folder)
    if is_gpu(manifest.device.target):
        raise BadInput(f"{folder}: profiles are of CPUs; NVIDIA's Nsight shows a GPU's kernels")
    rows = {function: row for row in manifest.tasks for function in row.functions}
    found = profile(folder)
    total = sum(call.seconds for call in found.calls)
    kernels = [
        _kernel(call, rows.get(call.name), total, found) for call in found.calls if not call.is_runtime
    ]
    if runtime := [call for call in found.calls if call.is_runtime]:
        calls, seconds = sum(call.calls for call in runtime), sum(call.seconds for call in runtime)
        kernels.append(
            KernelProfile("virtual machine", "runtime", calls, seconds, seconds / total, None, None, None)
        )
    return ProfileReport(str(folder), tuple(kernels), found.run_seconds, found.peak_flops, found.threads)


def _kernel(call: "CallProfile", row: "TaskRow | None", total: float, found: "Profile") -> KernelProfile:
    share = call.seconds / total
    if row is None:  # a package of an earlier version says nothing of its programs
        return KernelProfile(call.name, "other", call.calls, call.seconds, share, None, None, None)
    flops = row.flops * call.calls / call.seconds if row.flops else None
    peak_share = flops / found.peak_flops if flops is not None and row.dtype == "float32" else None
    moved = row.bytes * call.calls / call.seconds
    return KernelProfile(call.name, row.op, call.calls, call.seconds, share, flops, peak_share, moved)


def _giga(rate: float | None) -> float | None:
    return None if rate is None else round(rate / 1e9, 1)
