"""Rows of feature maps shared out among cores: which programs are reordered, and that they compute the same."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.targets import target_of

TWO_CORES = {"kind": "llvm", "num-cores": 2}


def network(rows: int, channels: int, depthwise: bool = False, batch: int = 1) -> Any:
    """A chain of two 1x1 (or then depthwise) convolutions over blocked maps."""
    import_tvm()
    from tvm import relax

    from tcl.compiler.lowering.convolution import conv2d_blocked

    chunks = channels // 8
    weights = np.random.default_rng(0).standard_normal((2 * chunks, chunks, 1, 1, 8, 8)).astype(np.float32)
    filters = np.random.default_rng(1).standard_normal((chunks, 1, 3, 3, 1, 8)).astype(np.float32)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((batch, chunks, rows, rows, 8), "float32"))

    def conv2d(data: Any, name: str, kernel: np.ndarray, groups: int = 1) -> Any:
        arguments = (data, relax.const(kernel), (1, 1), (0, 0, 0, 0), (1, 1), groups)
        return builder.emit(builder.call_te(conv2d_blocked, *arguments, primfunc_name_hint=name))

    with builder.function("main", [x]):
        first = conv2d(x, "first", weights[:chunks])
        kernel, groups = (filters, channels) if depthwise else (weights, 1)
        builder.emit_func_output(conv2d(first, "second", kernel, groups))
    return builder.get()


def scheduled(mod: Any, outer_rows: int | None = None) -> Any:
    """Each program parallel over its channel chunks, and so many parts of the rows (all of them if not given)."""
    from tvm import s_tir, tirx

    for variable, function in list(mod.functions_items()):
        if not isinstance(function, tirx.PrimFunc):
            continue
        schedule = s_tir.Schedule(function)
        (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
        loops = schedule.get_loops(block)
        first, _ = schedule.split(loops[2], [outer_rows, None] if outer_rows else [None, 1])
        schedule.reorder(loops[0], loops[1], first)
        schedule.parallel(schedule.fuse(loops[0], loops[1], first))
        mod[variable] = schedule.mod["main"].with_attr("global_symbol", variable.name_hint)
    return mod


def shared(mod: Any, target: dict[str, Any] = TWO_CORES) -> Any:
    from tcl.compiler.programs.row_sharing import share_rows

    return share_rows(mod, target_of(target), ["first", "second"])


def reordered(mod: Any) -> list[str]:
    """Names of the programs whose parallel loop goes another way."""
    return [name for name in ("first", "second") if "_by_rows" in mod[name].script()]


def rows_of_first_half(mod: Any) -> set[int]:
    """Rows that are there when "first" has done the first half of its parallel loop, as one of two cores does."""
    tvm = import_tvm()
    from tvm import tirx

    from tcl.compiler.programs.statements import realize_with

    function = mod["first"]
    root = function.body
    loop = root.block.body
    half = tirx.For(loop.loop_var, loop.min, int(loop.extent) // 2, loop.kind, loop.body)
    program = function.with_body(realize_with(root, half))
    x, weights, result = (
        tvm.runtime.tensor(np.full([int(e) for e in parameter.ty.shape], value, np.float32))
        for parameter, value in zip(function.params, (1, 1, 0), strict=True)
    )
    tvm.compile(tvm.IRModule({"first": program}), target_of(TWO_CORES))["first"](x, weights, result)
    return set(np.nonzero(result.numpy().any(axis=(0, 1, 3, 4)))[0].tolist())


def run(mod: Any, x: np.ndarray) -> np.ndarray:
    tvm = import_tvm()
    from tcl.compiler.programs.build import build_executable

    machine = tvm.relax.VirtualMachine(build_executable(mod, target_of(TWO_CORES)), tvm.cpu())
    return np.asarray(machine["main"](tvm.runtime.tensor(x)).numpy())


@settings(max_examples=8)
@given(rows=st.sampled_from([4, 7, 12, 13]), chunks=st.sampled_from([2, 3, 4]), depthwise=st.booleans())
def test_network_computes_the_same_when_rows_are_shared_out(rows: int, chunks: int, depthwise: bool) -> None:
    x = np.random.default_rng(2).standard_normal((1, chunks, rows, rows, 8), np.float32)
    mod = scheduled(network(rows, 8 * chunks, depthwise))
    np.testing.assert_array_equal(run(shared(mod), x), run(mod, x))


def test_each_core_writes_its_own_rows_when_maps_are_larger_than_weights() -> None:
    mod = scheduled(network(rows=32, channels=32))
    assert rows_of_first_half(mod) == set(range(32))  # of half of the channels
    assert rows_of_first_half(shared(mod)) == set(range(16))


def test_program_keeps_its_order_when_its_weights_are_larger_than_its_maps() -> None:
    assert reordered(shared(scheduled(network(rows=32, channels=32)))) == ["first", "second"]
    assert reordered(shared(scheduled(network(rows=4, channels=64)))) == []


@pytest.mark.parametrize(("rows", "expected"), [(32, ["first", "second"]), (4, [])], ids=["rows", "channels"])
def test_depthwise_convolution_follows_the_program_before_it(rows: int, expected: list[str]) -> None:
    assert reordered(shared(scheduled(network(rows, channels=64, depthwise=True)))) == expected


def test_program_keeps_its_order_when_its_threads_have_no_rows_of_their_own() -> None:
    assert reordered(shared(scheduled(network(rows=32, channels=32), outer_rows=1))) == []


def test_program_keeps_its_order_when_each_core_has_its_own_images() -> None:
    assert reordered(shared(scheduled(network(rows=32, channels=32, batch=2)))) == []


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "llvm", "num-cores": 1},
        {"kind": "cuda", "arch": "sm_80", "max_num_threads": 1024, "max_threads_per_block": 1024},
    ],
    ids=["one core", "gpu"],
)
def test_network_stays_as_it_is_when_no_cores_share_it(target: dict[str, Any]) -> None:
    mod = scheduled(network(rows=32, channels=32))
    assert shared(mod, target) is mod
