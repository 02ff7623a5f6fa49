"""TCL compiles ONNX models fast for many devices with a learned cost model."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """Resolve `tcl.load` at first use, so that importing `tcl` stays free of TVM (PEP 562)."""
    if name == "load":
        from tcl.compiler.running.loader import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
