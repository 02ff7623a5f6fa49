"""What needs an NVIDIA GPU, in minutes: measure on it, learn, compile, verify, run. `make gpu-check` runs it.

The tests that need no GPU (design space, generated CUDA) are in `tests/compiler/test_cuda.py`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]
from command_line import Project, save_convolution, save_matmul  # noqa: E402

DEVICE = "gpu"


def main() -> None:
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    print(listing.stdout.strip())
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        device = project.ok("device", "add", DEVICE, "--target", "cuda")["device"]
        print(json.dumps(device))
        assert device["target"]["kind"] == "cuda" and device["facts"]["sm_count"] > 0
        models = [save_matmul(project.root / f"m{n}.onnx", n, rows=256, depth=256) for n in (128, 256, 512)]
        models.append(save_convolution(project.root / "c.onnx"))
        measured = project.ok("measure", *models, "--device", DEVICE, "--budget", "96", "--sampler", "random")
        print(measured["measured"], "candidates measured")
        project.ok("distill", "--device", DEVICE)
        for trials in ("0", "16"):
            for model in (models[0], models[-1]):
                made = project.ok("compile", model, "--device", DEVICE, "--trials", trials, "-o", "package")
                assert made["verification"]["max_rel"] <= 1e-3
                print(Path(model).name, trials, "trials:", made["latency"]["tuned"]["median_seconds"], "s")
        outcome = project.run("run", "package", "--output", "y.npz")
        assert outcome.code == 0, outcome.err
        with np.load(project.root / "y.npz", allow_pickle=False) as arrays:
            assert all(np.isfinite(array).all() for array in arrays.values())
    print("the GPU checks pass")


if __name__ == "__main__":
    main()
