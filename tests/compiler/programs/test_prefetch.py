"""Prefetches that reductions get: what they compute, what machine code becomes of them, and where there are none."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.targets import target_of

HOST = {"kind": "llvm", "num-cores": 1}
X86 = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4", "num-cores": 2}
ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 2}
ARM32 = {"kind": "llvm", "mtriple": "armv7l-linux-gnueabihf", "mcpu": "cortex-a9", "num-cores": 2}


def product(rows: int, depth: int, columns: int) -> Any:
    """An unscheduled matrix product."""
    tvm = import_tvm()
    from tvm import s_tir, te

    a = te.placeholder((rows, depth), name="a")
    b = te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    return s_tir.Schedule(tvm.IRModule({"main": function}))


def matmul(
    depth: int = 256, columns: int = 256, rows: int = 16, tile: int = 8, lanes: int = 16, chunk: int = 32
) -> Any:
    """A matrix product with a tile of accumulators, `chunk` steps of the reduction at a time, as tuned ones have."""
    schedule = product(rows, depth, columns)
    block = schedule.get_sblock("c")
    i, j, k = schedule.get_loops(block)
    i, i_tile = schedule.split(i, [None, tile])
    j, j_tile = schedule.split(j, [None, lanes])
    k, k_chunk = schedule.split(k, [None, chunk])
    schedule.reorder(i, j, k, k_chunk, i_tile, j_tile)
    accumulators = schedule.cache_write(block, 0, "global")
    schedule.reverse_compute_at(accumulators, j)
    schedule.parallel(schedule.fuse(i, j))
    schedule.vectorize(j_tile)
    schedule.unroll(i_tile)
    schedule.vectorize(schedule.get_loops(accumulators)[-1])
    schedule.decompose_reduction(block, k)
    return schedule.mod


def panels(columns: int, passes: int, lanes: int, chunk: int, depth: int = 256, tile: int = 4) -> Any:
    """A matrix product whose panels of `lanes` columns are read in `passes` passes, one for each tile of rows."""
    schedule = product(2 * passes * tile, depth, columns)
    block = schedule.get_sblock("c")
    i, j, k = schedule.get_loops(block)
    half, i, i_tile = schedule.split(i, [2, passes, tile])
    j, j_lane = schedule.split(j, [None, lanes])
    k, k_chunk = schedule.split(k, [None, chunk])
    schedule.reorder(half, j, i, k, k_chunk, i_tile, j_lane)
    schedule.parallel(half)
    schedule.vectorize(j_lane)
    schedule.decompose_reduction(block, k)
    return schedule.mod


def prefetched(mod: Any, buffer: str) -> list[tuple[Any, list[Any], int]]:
    """Offset, loops around and locality of each prefetch of a buffer."""
    import_tvm()
    from tvm import s_tir, tirx

    found = []

    def visit(stmt: Any, loops: list[Any]) -> None:
        if isinstance(stmt, tirx.For):
            visit(stmt.body, [*loops, stmt])
        elif isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                visit(part, loops)
        elif isinstance(stmt, s_tir.SBlockRealize):
            visit(stmt.block.body, loops)
        elif isinstance(stmt, tirx.Evaluate) and stmt.value.op.name == "tirx.prefetch":
            pointer, locality = stmt.value.args
            if f"{buffer}.data" in str(pointer) or f"{buffer} " in str(pointer.args[1]):
                found.append((pointer.args[2], loops, int(locality)))

    visit(mod["main"].body, [])
    return found


def with_prefetches(mod: Any, target: dict[str, Any]) -> Any:
    from tcl.compiler.programs.prefetch import insert_prefetches

    return insert_prefetches(mod, target_of(target), ["main"])


def count(mod: Any) -> int:
    """Prefetches in a program's text."""
    return int(mod.script().count("prefetch("))


def assembly(mod: Any, target: dict[str, Any]) -> str:
    return str(import_tvm().tirx.build(mod, target_of(target)).inspect_source("s"))


@settings(max_examples=16)
@given(
    depth=st.sampled_from([64, 100, 256]),
    columns=st.sampled_from([256, 512]),
    tile=st.sampled_from([4, 8, 16]),
    chunk=st.sampled_from([4, 32]),
)
def test_product_is_the_same_with_prefetches(depth: int, columns: int, tile: int, chunk: int) -> None:
    tvm = import_tvm()
    rng = np.random.default_rng(0)
    a = rng.standard_normal((16, depth), np.float32)
    b = rng.standard_normal((depth, columns), np.float32)
    mod = with_prefetches(matmul(depth, columns, tile=tile, chunk=chunk), HOST)
    result = tvm.runtime.tensor(np.zeros((16, columns), np.float32))
    tvm.compile(mod, target_of(HOST))["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), result)
    np.testing.assert_allclose(result.numpy(), a @ b, rtol=1e-3, atol=1e-4)


@settings(max_examples=12)
@given(
    columns=st.sampled_from([64, 96]),
    passes=st.sampled_from([4, 20]),
    lanes=st.sampled_from([16, 32]),
    chunk=st.sampled_from([4, 16]),
)
def test_product_is_the_same_when_panels_are_prefetched(
    columns: int, passes: int, lanes: int, chunk: int
) -> None:
    tvm = import_tvm()
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8 * passes, 256), np.float32)
    b = rng.standard_normal((256, columns), np.float32)
    mod = with_prefetches(panels(columns, passes, lanes, chunk), HOST)
    assert prefetched(mod, "b")
    result = tvm.runtime.tensor(np.zeros((8 * passes, columns), np.float32))
    tvm.compile(mod, target_of(HOST))["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), result)
    np.testing.assert_allclose(result.numpy(), a @ b, rtol=1e-3, atol=1e-4)


def test_one_line_is_prefetched_for_each_that_a_step_reads() -> None:
    assert count(with_prefetches(matmul(lanes=16), X86)) == 1
    assert count(with_prefetches(matmul(lanes=32), X86)) == 2


def test_target_is_some_iterations_ahead_when_the_reduction_is_long() -> None:
    # a step is eight multiply-adds of whole lines, so 2000 cycles are 250 steps: 8 chunks of 32, of 64
    text = with_prefetches(matmul(depth=2048), X86).script()
    assert f"k_0 * T.int64({32 * 256})" in text or f"k_0 * {32 * 256}" in text
    assert f"{8 * 32 * 256}" in text


@settings(max_examples=20)
@given(
    columns=st.sampled_from([64, 128, 256]),
    passes=st.sampled_from([4, 6, 8, 64]),
    lanes=st.sampled_from([16, 32]),
    chunk=st.sampled_from([4, 16]),
)
def test_passes_over_a_panel_prefetch_all_lines_of_the_next(
    columns: int, passes: int, lanes: int, chunk: int
) -> None:
    from tcl.compiler.programs.indices import evaluate

    calls = prefetched(with_prefetches(panels(columns, passes, lanes, chunk), X86), "b")
    assert calls
    for panel in range(columns // lanes):
        lines = set()
        for offset, loops, locality in calls:
            _, j, *inner = loops
            grid = np.indices([int(loop.extent) for loop in inner])
            values = [(loop.loop_var, points) for loop, points in zip(inner, grid, strict=True)]
            values += [(loops[0].loop_var, np.int64(0)), (j.loop_var, np.int64(panel))]
            lines |= set((np.asarray(evaluate(offset, values)) // 16).ravel().tolist())
            assert locality == 2  # the second cache
        following = (panel + 1) % (columns // lanes)
        wanted = {
            (k * columns + following * lanes + lane) // 16 for k in range(256) for lane in range(0, lanes, 16)
        }
        assert lines == wanted


def test_operand_is_streamed_when_no_panel_comes_after() -> None:
    calls = prefetched(with_prefetches(matmul(), X86), "b")
    assert [locality for _, _, locality in calls] == [3]


@pytest.mark.parametrize(
    ("make", "target", "instruction"),
    [
        (matmul, X86, "prefetcht0"),
        (matmul, ARM, "prfm"),
        (matmul, ARM32, "pld"),
        (lambda: panels(64, 4, 16, 4), X86, "prefetcht1"),
        (lambda: panels(64, 4, 16, 4), ARM, "pldl2keep"),
    ],
    ids=["x86", "arm", "arm32", "x86 panel", "arm panel"],
)
def test_prefetch_becomes_an_instruction_of_the_machine(
    make: Any, target: dict[str, Any], instruction: str
) -> None:
    mod = make()
    assert instruction not in assembly(mod, target)
    assert instruction in assembly(with_prefetches(mod, target), target)


def test_accumulators_stay_in_registers_when_they_are_too_large_for_the_stack() -> None:
    mod = matmul(rows=32, tile=28, columns=224)  # 28 x 16 floats: TVM takes them from the heap
    plain, prefetching = (assembly(one, X86) for one in (mod, with_prefetches(mod, X86)))
    assert "prefetcht0" in prefetching
    assert prefetching.count("vfmadd") >= plain.count("vfmadd")
    assert stores(prefetching) <= stores(plain)


def stores(text: str) -> int:
    """Stores of whole vectors to memory."""
    lines = (line.split() for line in text.splitlines())
    return sum(
        bool(words) and words[0].startswith("vmov") and words[1].startswith("%zmm") and "(" in words[-1]
        for words in lines
    )


def test_loops_are_unrolled_as_without_prefetches_when_their_number_is_bounded() -> None:
    mod = matmul()
    from tvm import s_tir

    schedule = s_tir.Schedule(mod)
    (outer, *_) = schedule.get_loops(schedule.get_sblock("c_update"))
    schedule.annotate(outer, "pragma_auto_unroll_max_step", 64)
    text = with_prefetches(schedule.mod, X86).script()
    assert '"pragma_auto_unroll_max_step": T.int64(72)' in text  # a ninth statement beside eight


@pytest.mark.parametrize(
    "sizes",
    [
        {"depth": 64, "columns": 64},  # 16 KB
        {"depth": 64, "chunk": 64},  # 512 cycles in all: a quarter of them is too short
        {"tile": 2},  # a prefetch for two multiply-adds
    ],
    ids=["small", "short", "cheap"],
)
def test_program_stays_as_it_is_when_prefetches_would_not_pay(sizes: dict[str, int]) -> None:
    mod = matmul(**sizes)
    assert with_prefetches(mod, X86).script() == mod.script()


def test_program_stays_as_it_is_when_it_is_not_for_a_cpu() -> None:
    mod = matmul()
    gpu = {"kind": "cuda", "arch": "sm_80", "max_num_threads": 1024, "max_threads_per_block": 1024}
    assert with_prefetches(mod, gpu) is mod
