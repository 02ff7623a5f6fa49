"""Times a benchmark network in torch, in a process of its own: see `others` of `tcl.compiler.running.latency`.

``python -m tcl.bench.tune_torch torch|torch-inductor NETWORK FEED PACKAGE CORES BOARD`` prints seconds as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ENGINES = ("torch", "torch-inductor")


def main(engine: str, network: str, feed_file: str, package: str, cores: str, board: str) -> None:
    """Time the network on the given cores with the inputs that the package gets."""
    chosen = {int(core) for core in cores.split(",")}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, chosen)
    import torch

    from tcl.bench.networks import build_module
    from tcl.compiler.frontend.inputs import read_inputs
    from tcl.compiler.packaging.manifest import Manifest
    from tcl.compiler.running.latency import time_runs
    from tcl.compiler.running.priority import raise_priority

    torch.set_num_threads(len(chosen))
    module, _ = build_module(network)
    if engine == "torch-inductor":
        module = torch.compile(module)
    arrays = read_inputs(Path(feed_file), Manifest.read(Path(package)).inputs)
    inputs = [torch.from_numpy(array) for array in arrays.values()]
    with torch.inference_mode():
        module(*inputs)  # inductor compiles here, before the priority keeps its compiler processes waiting
        raise_priority()
        print(json.dumps(time_runs(lambda: module(*inputs))))


if __name__ == "__main__":
    main(*sys.argv[1:])
