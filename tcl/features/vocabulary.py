"""The step kinds that MetaSchedule traces and Ansor logs share, on CPU and GPU alike.

Ids are part of the feature version: append, never reorder. What only moves loops about (fuse, reorder,
follow-split) is no kind of its own: it is followed by `tcl.features.tracker`, and shows in the extents of the
steps that act on the moved loops.
"""

from __future__ import annotations

PADDING = 0
UNKNOWN = 1

KINDS = (
    "padding",
    "unknown",
    "summary_spatial",  # the main block's spatial tile, level by level
    "summary_reduce",  # its reduction tile
    "summary_schedule",  # parallelism, vector, unrolling and footprints of the whole schedule
    "split",
    "parallel",
    "vectorize",
    "unroll",
    "bind_block",
    "bind_thread",
    "bind_vthread",
    "compute_at",
    "reverse_compute_at",
    "compute_inline",
    "compute_root",
    "cache_read",
    "cache_write",
    "cooperative_fetch",
    "rfactor",
    "decompose_reduction",
    "auto_parallel",  # limits that a post-processing pass turns into loops
    "auto_vectorize",
    "auto_unroll",
    "software_pipeline",
    "layout",
    "storage",
    "tensorize",
    "annotate",
    "pad",
    "summary_resources",  # of a GPU: registers, shared memory, occupancy and unrolling
    "summary_memory",  # coalescing, traffic and estimated times
    "summary_core",  # of a CPU: vector lanes, registers, unrolling and estimated cycles
    "summary_cache",  # footprints, traffic, threads and what is computed inside the loops
)
"""Name of each id."""

KIND_IDS = {name: index for index, name in enumerate(KINDS)}
VOCABULARY_SIZE = len(KINDS)
