"""Runs the instructions of a MetaSchedule trace over the decisions of many candidates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tcl.features.summary import add_summary
from tcl.features.tracker import (
    COUNT,
    EXTENT,
    NUMBER,
    REDUCE,
    ROLE,
    SCOPE,
    SPATIAL,
    Block,
    Loop,
    Place,
    Tracker,
    log2,
)
from tcl.features.workload import WorkloadSummary


class Instruction(NamedTuple):
    """One instruction of a trace, in the order of its JSON."""

    name: str
    inputs: list[Any]
    attributes: list[Any]
    outputs: list[Any]
    position: int


class Replay:
    """One pass through a sketch for a number of candidates."""

    def __init__(
        self, columns: Mapping[int, np.ndarray], count: int, summary: WorkloadSummary | None
    ) -> None:
        self.columns = columns
        self.summary = summary
        self.tracker = Tracker(count)
        self.env: dict[str, Any] = {}
        self.structure: dict[int, str] = {}
        self.limits: dict[str, Any] = {}

    def run(self, instructions: Sequence[Instruction]) -> tuple[np.ndarray, np.ndarray]:
        """The step sequences: kinds int16[n, L] and values float32[n, L, STEP_WIDTH]."""
        for instruction in instructions:
            handler = _HANDLERS.get(instruction.name)
            if handler is not None:
                handler(self, instruction)
            elif instruction.name not in _SILENT:
                self.plain(_PLAIN.get(instruction.name, "unknown"), instruction)
        add_summary(self.tracker, **self.limits)
        return self.tracker.finish()

    # What names stand for. A mangled trace may name anything: it gets a block, loop or number of its own.
    def block(self, instruction: Instruction, at: int = 0) -> Block:
        name = instruction.inputs[at] if len(instruction.inputs) > at else None
        found = self.env.get(name) if isinstance(name, str) else None
        return found if isinstance(found, Block) else self.define_block(name, "")

    def define_block(self, name: Any, label: str) -> Block:
        block = self.tracker.block(label)
        if isinstance(name, str):
            self.env[name] = block
        return block

    def loop(self, name: Any) -> Loop:
        found = self.env.get(name) if isinstance(name, str) else None
        return found if isinstance(found, Loop) else Loop()

    def number(self, value: Any) -> Any:
        """An integer, int64[n], or None."""
        if isinstance(value, str):
            value = self.env.get(value)
        if isinstance(value, np.ndarray):
            return value
        return int(value) if isinstance(value, (int, float)) and abs(value) < 2**40 else None

    # Sampling
    def sample_tile(self, it: Instruction) -> None:
        for position, name in enumerate(it.outputs):
            self.env[str(name)] = self.columns[it.position][:, position]

    def sample_categorical(self, it: Instruction) -> None:
        options = it.attributes[0] if it.attributes and isinstance(it.attributes[0], list) else []
        numbers = [option for option in options if isinstance(option, int)] or [0]
        chosen = np.clip(self.columns[it.position], 0, len(numbers) - 1)
        if it.outputs:
            self.env[str(it.outputs[0])] = np.array(numbers, np.int64)[chosen]

    def sample_location(self, it: Instruction) -> None:
        if it.outputs:
            self.env[str(it.outputs[0])] = self.columns[it.position]

    # Blocks and loops
    def get_block(self, it: Instruction) -> None:
        label = str(it.attributes[0]) if it.attributes else ""
        if it.outputs:
            self.define_block(it.outputs[0], label)

    def get_loops(self, it: Instruction) -> None:
        block = self.block(it)
        if len(block.loops) != len(it.outputs):
            block.loops = block.loops[: len(it.outputs)]
            fresh = self.fresh_loops(block, len(it.outputs)) if not block.loops else []
            block.loops += fresh or [Loop() for _ in range(len(it.outputs) - len(block.loops))]
        for name, loop in zip(it.outputs, block.loops, strict=False):
            self.env[str(name)] = loop

    def fresh_loops(self, block: Block, count: int) -> list[Loop]:
        summary = self.summary
        if summary is None or count != len(summary.spatial) + len(summary.reduce):
            return []
        spatial = [Loop(log2(extent), SPATIAL) for extent in summary.spatial]
        return spatial + [Loop(log2(extent), REDUCE) for extent in summary.reduce]

    def split(self, it: Instruction) -> None:
        if not it.inputs:
            return
        loop = self.loop(it.inputs[0])
        block = self.owner(loop) or self.tracker.block("", [loop])
        factors = [self.number(factor) for factor in it.inputs[1:]]
        inner = sum(log2(factor) for factor in factors if factor is not None)
        rest = np.rint(np.exp2(np.clip(loop.log - inner, 0, 40))).astype(np.int64)
        full = [rest if factor is None else factor for factor in factors]
        structure = self.structure.get(id(block), "")
        role = loop.role
        tiled = bool(structure) and len(full) in (structure.count("S"), structure.count("R"))
        if tiled:
            role = SPATIAL if len(full) == structure.count("S") else REDUCE
        if full:
            parts = self.tracker.split(block, loop, full, role, tiled)
            self.env.update(zip(map(str, it.outputs), parts, strict=False))

    def fuse(self, it: Instruction) -> None:
        loops = [self.loop(name) for name in it.inputs]
        if loops and it.outputs:
            self.env[str(it.outputs[0])] = self.tracker.fuse(loops)

    def reorder(self, it: Instruction) -> None:
        self.tracker.reorder([self.loop(name) for name in it.inputs])

    def on_loop(self, it: Instruction, kind: str) -> None:
        loop = self.loop(it.inputs[0] if it.inputs else None)
        self.tracker.row(kind, self.owner(loop), {EXTENT: loop.log / 5, ROLE: loop.role})

    def bind(self, it: Instruction) -> None:
        thread = str(it.attributes[0]) if it.attributes else ""
        virtual = "bind_vthread" if thread.startswith("vthread") else "bind_thread"
        self.on_loop(it, "bind_block" if thread.startswith("block") else virtual)

    def owner(self, loop: Loop) -> Block | None:
        return next((block for block in self.tracker.blocks if loop in block.loops), None)

    # Blocks moved, cached, annotated
    def compute_at(self, it: Instruction) -> None:
        kind = "reverse_compute_at" if it.name.startswith("Reverse") else "compute_at"
        block = self.block(it)
        target = self.env.get(it.inputs[1]) if len(it.inputs) > 1 and isinstance(it.inputs[1], str) else None
        home = self.tracker.main()
        index: Any = -1
        if isinstance(target, Loop):
            home = self.owner(target) or home
            index = home.loops.index(target) if home and target in home.loops else -1
            block.loops = home.loops[: index + 1] if home else []
        elif isinstance(target, np.ndarray):
            index = target
        if home:
            block.place = Place(home, index, kind == "reverse_compute_at")
        slots = self.tracker.location(home, index) if home else {}
        if block.row is not None:
            block.row.update(slots)
        else:
            block.row = self.tracker.row(kind, block, slots)

    def inline(self, it: Instruction) -> None:
        self.tracker.row("compute_inline", self.block(it))

    def cache(self, it: Instruction) -> None:
        kind = "cache_write" if it.name == "CacheWrite" else "cache_read"
        scope = _scope(it)
        operand = next((number for number in it.attributes if isinstance(number, int)), 0)
        block = self.define_block(it.outputs[0] if it.outputs else None, "")
        block.row = self.tracker.row(kind, block, {SCOPE: scope, COUNT: min(abs(operand), 8) / 4})

    def set_scope(self, it: Instruction) -> None:
        scope = _scope(it)
        block = self.block(it)
        if block.row is None:
            block.row = self.tracker.row("storage", block)
        block.row[SCOPE] = scope

    def rfactor(self, it: Instruction) -> None:
        loop = self.loop(it.inputs[0] if it.inputs else None)
        owner = self.owner(loop)
        if it.outputs:
            self.define_block(it.outputs[0], owner.name if owner else "").loops = (
                list(owner.loops) if owner else []
            )
        self.tracker.row("rfactor", owner, {EXTENT: loop.log / 5, ROLE: REDUCE})

    def annotate(self, it: Instruction) -> None:
        key = str(it.attributes[0]) if it.attributes else ""
        value = it.inputs[1] if len(it.inputs) > 1 else None
        if key.endswith("tiling_structure"):
            self.structure[id(self.block(it))] = _unquote(value)
            return
        if key in _SILENT_KEYS:
            return
        kind, limit = _ANNOTATIONS.get(key, ("annotate", None))
        number = self.number(value if not isinstance(value, list) else max(filter(_is_int, value), default=0))
        owner = self.env.get(it.inputs[0]) if it.inputs and isinstance(it.inputs[0], str) else None
        if limit is not None:
            self.limits[limit] = number
        log = 0.0 if number is None else log2(np.asarray(number) + (0 if limit else 1))
        self.tracker.row(kind, owner if isinstance(owner, Block) else None, {NUMBER: log / 4})

    def plain(self, kind: str, it: Instruction) -> None:
        self.tracker.row(kind, self.block(it))


def _is_int(value: Any) -> bool:
    return isinstance(value, int)


def _scope(it: Instruction) -> float:
    return next((_SCOPES[name] for name in it.attributes if isinstance(name, str) and name in _SCOPES), 0.0)


def _unquote(value: Any) -> str:
    try:
        return str(json.loads(value))
    except (TypeError, ValueError):
        return str(value)


_SCOPES = {"local": 1.0, "shared": 0.5, "shared.dyn": 0.5, "global": 0.0}

_ANNOTATIONS: dict[str, tuple[str, str | None]] = {
    "meta_schedule.parallel": ("auto_parallel", "parallel"),
    "meta_schedule.vectorize": ("auto_vectorize", "vector"),
    "meta_schedule.unroll_explicit": ("auto_unroll", "unroll"),
    "meta_schedule.unroll_implicit": ("auto_unroll", "unroll"),
    "meta_schedule.cooperative_fetch": ("cooperative_fetch", None),
    "meta_schedule.layout_rewrite_preproc": ("layout", None),
    "layout_free_buffers": ("layout", None),
    "software_pipeline_stage": ("software_pipeline", None),
    "meta_schedule.auto_tensorize": ("tensorize", None),
}

_SILENT_KEYS = {
    "meta_schedule.thread_extent_low_inclusive",
    "meta_schedule.thread_extent_high_inclusive",
    "meta_schedule.random_compute_producer",
    "software_pipeline_order",
    "software_pipeline_async_stages",
    "schedule_rule",
}

_SILENT = {
    "GetProducers",
    "GetConsumers",
    "GetChildBlocks",
    "GetOutputBlocks",
    "Unannotate",
}

_PLAIN = {
    "DecomposeReduction": "decompose_reduction",
    "StorageAlign": "storage",
    "UnsafeSetDType": "storage",
    "TransformLayout": "layout",
    "TransformBlockLayout": "layout",
    "ReIndex": "layout",
    "Blockize": "tensorize",
    "Tensorize": "tensorize",
    "PadEinsum": "pad",
    "RollingBuffer": "storage",
}

_HANDLERS: dict[str, Callable[[Replay, Instruction], None]] = {
    "GetBlock": Replay.get_block,
    "GetSBlock": Replay.get_block,
    "GetLoops": Replay.get_loops,
    "SamplePerfectTile": Replay.sample_tile,
    "SamplePartitionedTile": Replay.sample_tile,
    "SampleCategorical": Replay.sample_categorical,
    "SampleComputeLocation": Replay.sample_location,
    "Split": Replay.split,
    "LoopPartition": Replay.split,
    "Fuse": Replay.fuse,
    "Merge": Replay.fuse,
    "Reorder": Replay.reorder,
    "Bind": Replay.bind,
    "Parallel": partial(Replay.on_loop, kind="parallel"),
    "Vectorize": partial(Replay.on_loop, kind="vectorize"),
    "Unroll": partial(Replay.on_loop, kind="unroll"),
    "ComputeAt": Replay.compute_at,
    "ReverseComputeAt": Replay.compute_at,
    "ComputeInline": Replay.inline,
    "ReverseComputeInline": Replay.inline,
    "CacheRead": Replay.cache,
    "CacheWrite": Replay.cache,
    "ReadAt": Replay.cache,
    "WriteAt": Replay.cache,
    "SetScope": Replay.set_scope,
    "RFactor": Replay.rfactor,
    "Annotate": Replay.annotate,
}
