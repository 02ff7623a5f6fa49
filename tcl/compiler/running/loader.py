"""Running a package. Needs TVM and numpy, and nothing else of what compiled it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tcl.compiler.packaging.manifest import Manifest
from tcl.compiler.targets import device_of
from tcl.compiler.tensors import TensorSpec, check_feed
from tcl.devices.host import VECTOR_BITS, detect_host, has_gpu, is_gpu, machine_of, usable_cores
from tcl.errors import BadInput, WorkFailed
from tcl.files import sha256_file


class Package:
    """A compiled model: call it with named arrays.

    ``package(image=array)``, or ``package({"image:0": array})`` where a name is no identifier. Returns a
    dict of arrays, with the names and in the order of the ONNX model's outputs. Calls from several threads
    run one after the other.

    Attributes
    ----------
    folder
        Where it was loaded from.
    manifest
        Its ``tcl.json``.
    threads
        Threads it runs on.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, program: tuple[Any, Any], device: Any, threads: int
    ) -> None:
        import tvm

        self.folder = folder
        self.manifest = manifest
        self.threads = threads
        self._lock = threading.Lock()
        self._machine, self._main = program
        self._on_host = not is_gpu(manifest.device.target)
        try:
            self._buffers = [tvm.runtime.empty(spec.shape, spec.dtype, device) for spec in manifest.inputs]
        except Exception:  # TVM raises its own classes
            raise WorkFailed(f"{folder}: there is no memory for the inputs that the manifest lists") from None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, shapes and dtypes to feed."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, shapes and dtypes returned."""
        return self.manifest.outputs

    def __call__(self, feed: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, np.ndarray]:
        """Run the model once.

        Raises
        ------
        BadInput
            When an input is missing, unknown, or of another shape or dtype, or the manifest lists other outputs than
            the program has.
        WorkFailed
            When the program fails.
        """
        arrays = check_feed(self.inputs, {**(feed or {}), **named})
        with self._lock:
            for buffer, array in zip(self._buffers, arrays, strict=True):
                if self._on_host:  # TVM's own copies take ten microseconds each, whatever the size
                    np.from_dlpack(buffer)[...] = array
                else:
                    buffer.copyfrom(array)
            return self._named(self._run())

    def _run(self) -> list[np.ndarray]:
        import tvm

        try:
            result = self._main(*self._buffers)
        except Exception as error:  # TVM raises its own classes
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise WorkFailed(f"{self.folder}: the program failed: {lines[-1]}") from error
        results = [result] if isinstance(result, tvm.runtime.Tensor) else result
        if self._on_host:  # copied, as an output may be an input or a constant of the program
            return [np.from_dlpack(value).copy() for value in results]
        return [value.numpy() for value in results]

    def _named(self, results: list[np.ndarray]) -> dict[str, np.ndarray]:
        made = [(result.shape, str(result.dtype)) for result in results]
        if made != [(spec.shape, spec.dtype) for spec in self.outputs]:
            raise BadInput(
                f"{self.folder}: the program returns other outputs than the manifest lists; compile the model again"
            )
        return {spec.name: result for spec, result in zip(self.outputs, results, strict=True)}

    def observe(self, observer: Callable[..., int]) -> None:
        """Have the virtual machine call ``observer(function, name, before, result, *arguments)`` around each call."""
        self._machine.set_instrument(observer)

    def __repr__(self) -> str:
        device = self.manifest.device.name
        return f"Package({str(self.folder)!r}, device {device!r}, inputs {', '.join(map(str, self.inputs))})"


def load(folder: Path | str) -> Package:
    """Load a package.

    Everything is checked before the program in it is loaded: the manifest, the checksum of every file, TVM's
    version and this machine's instruction set.

    Parameters
    ----------
    folder
        The package's folder.

    Raises
    ------
    BadInput
        When the folder is no package, is damaged, or was compiled for another TVM or a stronger CPU.
    WorkFailed
        When there is no memory for its inputs.
    """
    folder = Path(folder)
    manifest = Manifest.read(folder)
    check_files(folder, manifest)
    _check_cpu(folder, manifest)
    threads = min(manifest.cores, usable_cores())
    # Or TVM would bind the caller's thread, and with it every process it starts, to one core.
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    # TVM's thread pool reads it once, at its start, and by default takes half of the logical CPUs on x86.
    os.environ["TVM_NUM_THREADS"] = str(threads)
    from tcl.compiler.bootstrap import import_tvm

    tvm = import_tvm(manifest.device.target)
    if tvm.__version__ != manifest.tvm_version:
        raise BadInput(
            f"{folder}: compiled with TVM {manifest.tvm_version}, but TVM {tvm.__version__} is installed;"
            " compile the model again or install that version"
        )
    tvm.get_global_func("runtime.config_threadpool")(1, threads)  # 1: prefer big cores
    device = device_of(manifest.device.target)
    return Package(folder, manifest, _open(folder / manifest.library, device), device, threads)


def _open(library: Path, device: Any) -> tuple[Any, Any]:
    """The virtual machine of a compiled program, and its function."""
    import tvm
    from tvm import relax

    try:
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library.absolute())), device)
        return machine, machine["main"]
    except Exception as error:  # TVM raises its own classes
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise BadInput(
            f"{library}: this is no program that TVM can load ({lines[-1]}); compile the model again"
        ) from None


def check_files(folder: Path, manifest: Manifest) -> None:
    """Check that a package is whole.

    Raises
    ------
    BadInput
        When a file is missing, is another than was packaged, or lies outside the folder.
    """
    for name, expected in manifest.files.items():
        path = folder / name
        if "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
            raise BadInput(
                f"{folder}: the manifest names the file {name!r} outside the package; compile again"
            )
        if not path.is_file():
            raise BadInput(f"{folder}: the package lacks its file {name!r}; copy it whole or compile again")
        if sha256_file(path) != expected:
            raise BadInput(
                f"{path}: the file is not the one that was packaged (SHA-256 differs); copy it again or"
                " compile again"
            )


def _check_cpu(folder: Path, manifest: Manifest) -> None:
    device = manifest.device
    machine = machine_of(device.target)
    if machine != machine_of({}):
        raise BadInput(
            f"{folder}: compiled for {machine}, and this machine is {machine_of({})}; copy the package to the device"
        )
    if is_gpu(device.target):
        if not has_gpu():
            raise BadInput(
                f"{folder}: compiled for a GPU, and this machine has none; copy the package to one that has"
            )
        return
    wanted, facts = device.facts.get("isa"), detect_host().facts
    if wanted in VECTOR_BITS and VECTOR_BITS[wanted] > facts.get("vector_bits", 0):
        raise BadInput(
            f"{folder}: compiled for {wanted}, which this CPU ({facts.get('cpu_model')}, {facts.get('isa')})"
            " does not have; compile for a device with this CPU"
        )
