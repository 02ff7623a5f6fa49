"""A network whose weights are larger than 2 GB, in external data, from ONNX to a package that runs (`make large`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent.parent))

from chaos import run_in, with_device
from command_line import DEVICE, QUICK, TCL, clean_environment
from crowd import memory_of
from promises import check_packages, check_registry

WIDTHS = (8192, 16384, 8192, 16384, 8192, 4096)
"""Of the layers; each pair is one matrix of float32."""


def save_large(path: Path) -> int:
    """Write a chain of products whose weights lie beside the file; returns the bytes of the weights."""
    rng, weights, nodes, offset = np.random.default_rng(0), [], [], 0
    data = path.with_suffix(".data")
    with data.open("wb") as stream:
        for index, (depth, columns) in enumerate(pairwise(WIDTHS)):
            values = rng.standard_normal((depth, columns), dtype=np.float32)
            values *= depth**-0.5  # so that the results stay near one
            tensor = TensorProto(name=f"w{index}", dims=values.shape, data_type=TensorProto.FLOAT)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", offset), ("length", values.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
            values.tofile(stream)
            weights.append(tensor)
            offset += values.nbytes
            nodes.append(helper.make_node("MatMul", [f"x{index}", f"w{index}"], [f"x{index + 1}"]))
    inputs = [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, WIDTHS[0]])]
    outputs = [helper.make_tensor_value_info(f"x{len(nodes)}", TensorProto.FLOAT, [1, WIDTHS[-1]])]
    graph = helper.make_graph(nodes, "large", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return offset


def timed(project: Path, *arguments: str) -> tuple[float, int]:
    """Run a command that must succeed; returns its seconds and the peak of its memory with its children's."""
    began, peak = time.monotonic(), 0
    process = subprocess.Popen(
        [TCL, *arguments],
        cwd=project,
        env=clean_environment() | QUICK,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None:
        peak = max(peak, memory_of([process]))
        time.sleep(0.2)
    assert process.stderr
    assert process.returncode == 0, process.stderr.read()[-500:]
    return time.monotonic() - began, peak


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="large-") as folder:
        project = Path(folder, "project")
        project.mkdir()
        with_device(project)
        run_in(
            project,
            "measure",
            "matmul16.onnx",
            "matmul32.onnx",
            "matmul48.onnx",
            "--device",
            DEVICE,
            "--budget",
            "12",
        )
        run_in(project, "distill", "--device", DEVICE)
        size = save_large(project / "large.onnx")
        commands = {
            "compile": ("compile", "large.onnx", "--device", DEVICE, "--trials", "0", "-o", "packages/large"),
            "run": ("run", "packages/large", "--benchmark"),
        }
        print(f"an ONNX model with {size / 1e9:.2f} GB of weights in external data", flush=True)
        for name, command in commands.items():
            seconds, peak = timed(project, *command)
            print(f"tcl {name}: {seconds:.0f} s, peak memory {peak / 1e9:.1f} GB", flush=True)
        check_packages(project)
        check_registry(project)


if __name__ == "__main__":
    main()
