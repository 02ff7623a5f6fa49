"""Results of a package's model by onnxruntime, and of the package itself; see `check.sh`."""

import platform
import sys
from pathlib import Path

import numpy as np

import tcl
from tcl.compiler.frontend.inputs import random_inputs
from tcl.compiler.packaging.manifest import Manifest

SEED = 0


def write_expected(package: Path, file: Path) -> None:
    import onnxruntime

    manifest = Manifest.read(package)
    session = onnxruntime.InferenceSession(manifest.model)
    outputs = session.run([spec.name for spec in manifest.outputs], random_inputs(manifest.inputs, SEED))
    np.savez(file, *outputs)


def compare(package: Path, file: Path) -> None:
    loaded = tcl.load(package)
    results = loaded(random_inputs(loaded.inputs, SEED))
    with np.load(file, allow_pickle=False) as expected:
        for index, (name, result) in enumerate(results.items()):
            wanted = expected[f"arr_{index}"]
            error = float(np.abs(result - wanted).max() / np.abs(wanted).max())
            print(f"{platform.machine()}: output {name!r} differs by {error:.2g}")
            if not error <= 1e-4:
                sys.exit(1)


if __name__ == "__main__":
    {"expected": write_expected, "compare": compare}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
