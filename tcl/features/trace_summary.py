"""What a MetaSchedule trace tells of the program it schedules, for programs that cannot be loaded."""

from __future__ import annotations

import json
from math import prod
from typing import Any

from tcl.features.workload import WorkloadSummary

_OPS = (  # the first word found in a block's name decides
    ("depthwise", "depthwise_conv2d"),
    ("conv2d", "conv2d"),
    ("bgemm", "conv2d"),  # the matrix product of a Winograd convolution
    ("batch_matmul", "batch_matmul"),
    ("matmul", "matmul"),
    ("dense", "matmul"),
    ("pool", "pool"),
    ("softmax", "softmax"),
    ("red", "reduce"),
    ("sum", "reduce"),
    ("mean", "reduce"),
)
_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}


def op_of_name(name: str) -> str | None:
    """Kind of operator that a block's name speaks of; None when it speaks of none."""
    lower = name.lower()
    return next((op for word, op in _OPS if word in lower), None)


def summary_of_trace(
    instructions: list, decisions: list, arguments: Any = None
) -> tuple[str, WorkloadSummary]:
    """A name and a summary of the program behind a trace.

    Parameters
    ----------
    instructions, decisions : list
        The two halves of the trace's JSON.
    arguments : list, optional
        MetaSchedule's argument info, ``[["TENSOR", dtype, shape], ...]`` with the output last.

    Raises
    ------
    ValueError, TypeError, KeyError, IndexError
        When the trace has another form.
    """
    taken = dict(decisions)
    blocks: dict[str, str] = {}
    anchor, structure = None, ""
    loop_owner: dict[str, str] = {}
    spatial: list[int] = []
    reduce: list[int] = []
    for position, (name, inputs, attributes, outputs) in enumerate(instructions):
        if name == "EnterPostproc":
            break
        if name in ("GetBlock", "GetSBlock") and attributes[0] != "root":
            blocks[outputs[0]] = attributes[0]
        elif name == "Annotate" and attributes[0] == "meta_schedule.tiling_structure":
            anchor, structure = inputs[0], json.loads(inputs[1])
        elif name == "GetLoops":
            loop_owner.update(dict.fromkeys(outputs, inputs[0]))
        elif (
            name == "SamplePerfectTile"
            and anchor
            and loop_owner.get(inputs[0]) == anchor
            and position in taken
        ):
            factors = taken[position]
            side = spatial if len(factors) == structure.count("S") else reduce
            side.append(prod(factors))
    names = list(blocks.values())
    main = blocks.get(anchor or "") or next((name for name in names if op_of_name(name)), "")
    op = op_of_name(main) or ("elementwise" if names else "other")
    sizes, dtype = _sizes(arguments)
    if not spatial and arguments:
        spatial = [int(extent) for extent in arguments[-1][2]]
    flops = float((2 if reduce else 1) * prod(spatial) * prod(reduce)) if spatial else 0.0
    summary = WorkloadSummary(
        op,
        dtype,
        flops,
        float(sum(sizes[:-1])),
        float(sum(sizes[-1:])),
        tuple(spatial),
        tuple(reduce),
        len(names),
    )
    return "_".join(names) or "program", summary


def _sizes(arguments: Any) -> tuple[list[int], str]:
    """Bytes of each argument, and the element type of the last."""
    sizes = [_BYTES.get(dtype, 4) * prod(shape) for _, dtype, shape in arguments or ()]
    return sizes, str(arguments[-1][1]) if arguments else "float32"
