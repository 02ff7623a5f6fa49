"""The original model under onnxruntime: what a package is compared with, in results and in speed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def import_onnxruntime() -> Any:
    """Import onnxruntime without its telemetry, which else keeps a database in the home folder and sends it."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


class Reference:
    """An onnxruntime session on the CPU.

    Parameters
    ----------
    path
        The ONNX file.
    threads
        Threads within an operator.
    fused_quantisation
        Whether quantised operators run as onnxruntime's integer kernels, as users have them. These round in between,
        and where the CPU has no VNNI they saturate sums of products at 16 bits: a package that is right may differ
        from them by several per cent. Without them a model computes what is written in it.
    """

    def __init__(self, path: Path, threads: int, *, fused_quantisation: bool = False) -> None:
        onnxruntime = import_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if not fused_quantisation:
            options.add_session_config_entry("session.disable_quant_qdq", "1")
            options.add_session_config_entry("session.x64quantprecision", "1")
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once; returns its outputs by name, in order."""
        names = [value.name for value in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, dict(feed)), strict=True))
