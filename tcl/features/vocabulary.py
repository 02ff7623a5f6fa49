"""The step kinds that MetaSchedule traces and Ansor logs share, on CPU and GPU alike.

Ids are part of the feature version: append, never reorder.
"""

from __future__ import annotations

PADDING = 0
UNKNOWN = 1

KINDS = (
    "padding",
    "unknown",
    "summary",  # derived numbers of the whole schedule
    "split",  # one loop into factors, outermost first
    "fuse",
    "reorder",
    "parallel",
    "vectorize",
    "unroll",
    "bind_block",
    "bind_thread",
    "bind_vthread",
    "compute_at",
    "reverse_compute_at",
    "compute_inline",
    "reverse_compute_inline",
    "compute_root",
    "cache_read",
    "cache_write",
    "rfactor",
    "decompose_reduction",
    "set_scope",
    "storage_align",
    "tensorize",
    "transform_layout",
    "layout_free",
    "software_pipeline",
    "cooperative_fetch",
    "auto_unroll",
    "auto_parallel",
    "auto_vectorize",
    "annotate",
    "pad",
)
"""Name of each id."""

KIND_IDS = {name: index for index, name in enumerate(KINDS)}
VOCABULARY_SIZE = len(KINDS)
