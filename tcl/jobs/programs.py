"""The tensor programs of ONNX models, as one device compiles them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tcl.console import note
from tcl.devices.device import Device
from tcl.errors import BadInput

if TYPE_CHECKING:
    from tcl.compiler.frontend.model import OnnxModel
    from tcl.compiler.programs.tasks import TuningTask


@dataclass(frozen=True)
class Network:
    """A model on its way to a device.

    Attributes
    ----------
    model
        The ONNX file as read and pinned.
    mod
        ``tvm.IRModule``, lowered to fused tensor programs.
    tasks
        Its distinct programs, the heaviest first.
    """

    model: "OnnxModel"
    mod: Any
    tasks: "list[TuningTask]"


def read_network(path: str, shapes: Sequence[str], device: Device) -> Network:
    """Read an ONNX file and lower it for a device.

    Parameters
    ----------
    path
        The ONNX file.
    shapes
        Values of ``--shape``.
    device
        The device.

    Raises
    ------
    BadInput
        When the model cannot be compiled, naming what is in the way.
    """
    from tcl.compiler.bootstrap import import_tvm
    from tcl.compiler.frontend.model import import_relax, read_onnx
    from tcl.compiler.frontend.shapes import parse_pins

    pins = parse_pins(shapes)
    import_tvm(device.target)
    from tcl.compiler.lowering.pipeline import lower
    from tcl.compiler.programs.tasks import extract_tasks
    from tcl.compiler.targets import target_of

    model = read_onnx(path, *pins)
    mod = lower(import_relax(model), target_of(device.target))
    return Network(replace(model, proto=None), mod, extract_tasks(mod))  # whose weights are in the module now


def extract_programs(paths: Sequence[str], shapes: Sequence[str], device: Device) -> "list[TuningTask]":
    """Collect the programs worth tuning of several models; one that occurs in more than one counts once.

    Raises
    ------
    BadInput
        When a model cannot be compiled, or when no model has a program to tune.
    """
    merged: dict[str, TuningTask] = {}
    for path in paths:
        tasks = [task for task in read_network(path, shapes, device).tasks if task.worth_tuning]
        note(f"{path}: {len(tasks)} tensor programs to tune")
        for task in tasks:
            known = merged.get(task.workload.key)
            merged[task.workload.key] = replace(task, weight=task.weight + (known.weight if known else 0))
    if not merged:
        raise BadInput(f"{', '.join(paths)}: there is no tensor program to tune, only copies and reshapes")
    return list(merged.values())
