"""Statements with other bodies; TVM has no visitor of statements for Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import s_tir, tirx

Stmt = Any


def loop_with(loop: tirx.For, body: Stmt, annotations: Mapping[str, Any] | None = None) -> tirx.For:
    """Return a loop with another body, and with other annotations where they are given."""
    notes = loop.annotations if annotations is None else annotations
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, notes, loop.step
    )


def realize_with(realize: s_tir.SBlockRealize, body: Stmt) -> s_tir.SBlockRealize:
    """Return a block in its place with another body."""
    block = realize.block
    changed = s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
    return s_tir.SBlockRealize(realize.iter_values, realize.predicate, changed)
