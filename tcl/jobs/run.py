"""Run and benchmark packages."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.errors import BadInput
from tcl.files import atomic_write
from tcl.jobs.tables import Table, duration

if TYPE_CHECKING:
    import numpy as np

    from tcl.compiler.frontend.model import OnnxModel
    from tcl.compiler.packaging.manifest import Manifest


def run_package(folder: Path, feed_file: Path | None, result_file: Path | None) -> dict[str, Any]:
    """Run a package once.

    Parameters
    ----------
    folder
        The package.
    feed_file
        ``.npz`` with an array for each input, by the ONNX model's names; None: seeded random inputs.
    result_file
        Where the outputs go as ``.npz``; None: nowhere.

    Returns
    -------
    dict
        For each output: name, shape, dtype and, of floats, the mean.

    Raises
    ------
    BadInput
        When the package or the inputs are not usable.
    """
    from tcl.compiler.frontend.inputs import random_inputs
    from tcl.compiler.running.loader import load

    package = load(folder)
    feed = _read_arrays(feed_file) if feed_file else random_inputs(package.inputs, seed=0)
    results = package(feed)
    if result_file:
        _write_arrays(result_file, results)
    outputs = [
        {"name": name, "shape": list(array.shape), "dtype": str(array.dtype)}
        for name, array in results.items()
    ]
    return {
        "package": str(folder),
        "outputs": outputs,
        "output_file": str(result_file) if result_file else None,
    }


@dataclass(frozen=True)
class BenchmarkReport:
    """Latencies of a package and, where it could be timed, of onnxruntime.

    Attributes
    ----------
    latencies
        `tcl.compiler.running.latency.Latency.to_json()` by contender.
    note
        Why onnxruntime is missing, or how the two compare.
    """

    package: str
    latencies: dict[str, dict[str, Any]]
    note: str

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {"package": self.package, "latency": self.latencies, "note": self.note}

    def table(self) -> Table:
        """One row for each contender."""
        rows = [
            (
                name,
                duration(latency["median_seconds"]),
                duration(latency["min_seconds"]),
                duration(latency["max_seconds"]),
                latency["threads"],
            )
            for name, latency in self.latencies.items()
        ]
        columns = ("contender", "median", "fastest round", "slowest round", "threads")
        return Table(f"Latency of {self.package}", columns, rows)


def benchmark_package(folder: Path, rounds: int = 3) -> BenchmarkReport:
    """Time a package and onnxruntime on its model: fresh processes in turn, same inputs and threads."""
    from tcl.compiler.packaging.manifest import Manifest
    from tcl.compiler.running.latency import ONNXRUNTIME, benchmark

    manifest = Manifest.read(folder)
    model, reason = _model_of(manifest)
    latencies = benchmark({"tcl": folder}, model, rounds)
    if model is not None:
        middle, low, high = latencies["tcl"].ratio(latencies[ONNXRUNTIME])
        reason = f"{middle:.2f}x onnxruntime's latency ({low:.2f} to {high:.2f} over {rounds} rounds)"
    return BenchmarkReport(
        str(folder), {name: latency.to_json() for name, latency in latencies.items()}, reason
    )


def _model_of(manifest: "Manifest") -> "tuple[OnnxModel | None, str]":
    """The ONNX model a package was compiled from; or None and why it cannot be timed."""
    from importlib.util import find_spec

    path = Path(manifest.model)
    if find_spec("onnxruntime") is None or find_spec("onnx") is None:
        return None, "onnxruntime is not installed, so it was not timed"
    if not path.is_file():
        return None, f"{path} is not there, so onnxruntime was not timed"
    from tcl.compiler.frontend.model import read_onnx

    if not _is_same(path, manifest.onnx_sha256):
        return None, f"{path} has changed since it was compiled, so onnxruntime was not timed"
    shapes = {spec.name: spec.shape for spec in manifest.inputs if spec.shape}
    return read_onnx(path, shapes, None, manifest.values), ""


def _is_same(path: Path, digest: str) -> bool:
    """Whether an ONNX file is still the one with this digest."""
    from tcl.compiler.frontend.reader import digest_onnx

    try:
        return digest_onnx(path) == digest
    except BadInput:  # it is no ONNX model any more
        return False


def _read_arrays(path: Path) -> "dict[str, np.ndarray]":
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # damaged archives make NumPy, zipfile and zlib raise whatever they meet
        reason = error.strerror if isinstance(error, OSError) else None
        raise BadInput(
            f"{path}: cannot be read as .npz arrays ({(reason or 'damaged, or of another format').lower()}); write it"
            " with numpy.savez"
        ) from None


def _write_arrays(path: Path, arrays: "dict[str, np.ndarray]") -> None:
    """Like numpy.savez, which takes neither every name nor an atomic file."""
    import numpy as np

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    try:
        atomic_write(path, buffer.getvalue())
    except FileNotFoundError:  # though the folder is there: /proc, for instance, takes no files
        raise BadInput(f"{path}: no file can be made there; choose another with --output") from None
