"""The reference kernel: one fixed matrix product whose run time tells how fast the device is just now."""

from __future__ import annotations

from typing import Any

from tcl.compiler.bootstrap import import_tvm

_COLUMNS = 256
_DEPTH = 1024  # times _COLUMNS floats: one megabyte is swept in each run, about what a core's L2 cache holds
_ROW_TILE = 4
_GPU_SIZE = 1024
_GPU_THREADS = 256


def reference_module(cores: int, vector_bits: int) -> Any:
    """Return the reference kernel, scheduled, as an IRModule.

    ``C[rows, 256] = A[rows, 1024] @ B[1024, 256]`` in float32, with rows in proportion to cores and vector
    width: a third of a millisecond on a CPU of 2024, whatever its cores. The kernel depends on nothing else,
    so its times can be compared across sessions on one device.

    Parameters
    ----------
    cores
        Threads to spread the rows over.
    vector_bits
        Width of the target's vector registers.
    """
    tvm = import_tvm()
    from tvm import te

    lanes = max(4, vector_bits // 32)
    rows = 4 * lanes * cores
    a = te.placeholder((rows, _DEPTH), name="A")
    b = te.placeholder((_DEPTH, _COLUMNS), name="B")
    k = te.reduce_axis((0, _DEPTH), name="k")
    c = te.compute((rows, _COLUMNS), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    schedule = tvm.s_tir.Schedule(
        tvm.IRModule({"main": te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")})
    )
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    thread, row, row_tile = schedule.split(i, [cores, None, _ROW_TILE])
    column, vector = schedule.split(j, [None, 2 * lanes])
    schedule.reorder(thread, row, column, k, row_tile, vector)
    accumulator = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(accumulator, column)
    schedule.parallel(thread)
    schedule.unroll(row_tile)
    schedule.vectorize(vector)
    schedule.vectorize(schedule.get_loops(accumulator)[-1])
    schedule.decompose_reduction(block, k)
    return schedule.mod


def gpu_reference_module() -> Any:
    """Return the reference kernel of GPUs, as an IRModule: 1024 x 256 times 256 x 1024, a thread for each result."""
    tvm = import_tvm({"kind": "cuda"})
    from tvm import te

    a = te.placeholder((_GPU_SIZE, _COLUMNS), name="A")
    b = te.placeholder((_COLUMNS, _GPU_SIZE), name="B")
    k = te.reduce_axis((0, _COLUMNS), name="k")
    c = te.compute((_GPU_SIZE, _GPU_SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    schedule = tvm.s_tir.Schedule(
        tvm.IRModule({"main": te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")})
    )
    i, j, _ = schedule.get_loops(schedule.get_sblock("C"))
    block, thread = schedule.split(schedule.fuse(i, j), [None, _GPU_THREADS])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    return schedule.mod
