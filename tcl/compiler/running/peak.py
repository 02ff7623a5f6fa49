"""The most that a machine computes: chains of fused multiply-adds in registers, on every thread."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

from tcl.compiler.bootstrap import import_tvm
from tcl.processes import run_module

_CHAINS = (
    8,
    12,
)  # independent, to hide the latency of two pipelines; which suits depends on latency and registers
_STEPS = 50_000
_RUNS = 9


def measure_peak_alone(target: dict[str, Any], cores: int, vector_bits: int) -> float:
    """Return what `measure_peak` does, from a process of its own: one that has used TVM keeps its number of threads."""
    done = run_module("tcl.compiler.running.peak", [json.dumps(target), str(cores), str(vector_bits)])
    done.check_returncode()
    return float(done.stdout.splitlines()[-1])


def measure_peak(target: dict[str, Any], cores: int, vector_bits: int) -> float:
    """Return the float32 operations per second that `cores` threads reach together, in a small compiled kernel.

    Parameters
    ----------
    target
        TVM target as JSON: its code is what counts, not all that the machine could do.
    cores
        Threads.
    vector_bits
        Width of the target's vector registers.
    """
    import_tvm(target)
    lanes = max(4, vector_bits // 32)
    return max(_measure(target, cores, chains, lanes) for chains in _CHAINS)


def _measure(target: dict[str, Any], cores: int, chains: int, lanes: int) -> float:
    import tvm

    kernel = tvm.build(_program(cores, chains, lanes), target=tvm.target.Target(target))["main"]
    addend = tvm.runtime.tensor(np.ones((chains, lanes), np.float32))  # keeps the sums away from denormals
    result = tvm.runtime.empty((cores, chains, lanes), "float32")
    seconds = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        kernel(addend, result)
        seconds.append(time.perf_counter() - start)
    return 2.0 * _STEPS * cores * chains * lanes / min(seconds)


def _program(cores: int, chains: int, lanes: int) -> Any:
    """``R[thread, chain, lane] <- R * constant + A[chain, lane]``, `_STEPS` times."""
    import tvm
    from tvm import te, tirx

    addend = te.placeholder((chains, lanes), name="A")
    step = te.reduce_axis((0, _STEPS), name="step")
    chain = te.comm_reducer(
        lambda x, y: x * tirx.const(0.5, "float32") + y, lambda dtype: tirx.const(1, dtype), name="chain"
    )
    result = te.compute((cores, chains, lanes), lambda t, u, v: chain(addend[u, v], axis=step), name="R")
    schedule = tvm.s_tir.Schedule(
        tvm.IRModule({"main": te.create_prim_func([addend, result]).with_attr("global_symbol", "main")})
    )
    block = schedule.get_sblock("R")
    thread, row, vector, loop = schedule.get_loops(block)
    schedule.reorder(thread, loop, row, vector)
    registers = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(registers, thread)
    schedule.parallel(thread)
    for nest in (schedule.get_loops(block), schedule.get_loops(registers)):
        schedule.unroll(nest[-2])
        schedule.vectorize(nest[-1])
    schedule.decompose_reduction(block, loop)
    return schedule.mod


def _main(target: str, cores: str, vector_bits: str) -> None:
    os.environ["TVM_NUM_THREADS"] = cores  # TVM's default is half of an x86 machine's
    print(measure_peak(json.loads(target), int(cores), int(vector_bits)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
