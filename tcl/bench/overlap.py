"""Does building other candidates disturb a timing? ``python -m tcl.bench.overlap`` measures it on this host.

The same candidates are timed in three ways, in turns so that the machine's drift meets all of them alike: with no
build going on, with builds stopped while a candidate is timed (the engine's default), and with builds going on.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from typing import Any

import click

from tcl.compiler.bootstrap import import_tvm
from tcl.devices.host import detect_host
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureOptions, MeasureRequest, MeasureResult

_SIZE = 256


def matmul_requests(target: dict[str, Any], count: int, size: int = _SIZE) -> list[MeasureRequest]:
    """Return `count` random schedules of a float32 matrix product."""
    tvm = import_tvm(target)
    from tvm import te
    from tvm.s_tir import Schedule, Trace, meta_schedule
    from tcl.compiler.workers import plain_json

    a, b = (te.placeholder((size, size), name=name) for name in "AB")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")})
    program = plain_json(meta_schedule.database.Workload(module).as_json())
    context = meta_schedule.TuneContext(
        module, target=tvm.target.Target(target), space_generator="post-order-apply"
    )
    return []


if __name__ == "__main__":
    main()
