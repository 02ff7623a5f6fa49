"""Benchmark networks with seeded random weights, written as ONNX files."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcl.errors import BadInput

_SEED = 2024
_OPSET = 17


@dataclass(frozen=True)
class _Entry:
    module: str
    """Module of `tcl.bench` with a function of the network's name."""
    shape: tuple[int, ...]
    tokens: int = 0
    """Vocabulary size where the input is token ids."""


HELD_OUT = ("squeezenet", "resnet50", "mobilenet_v2", "resnext50_32x4d", "bert_tiny", "bert_base")
"""Networks for testing; their tensor programs stay out of the shipped dataset."""

_TORCH = {
    "resnet50": _Entry("held_out", (1, 3, 224, 224)),
    "mobilenet_v2": _Entry("held_out", (1, 3, 224, 224)),
    "resnext50_32x4d": _Entry("held_out", (1, 3, 224, 224)),
    "bert_tiny": _Entry("held_out", (1, 128), tokens=30522),
    "bert_base": _Entry("held_out", (1, 128), tokens=30522),
    "vgg_like": _Entry("training_networks", (1, 3, 160, 160)),
    "densenet_like": _Entry("training_networks", (1, 3, 160, 160)),
    "shufflenet_like": _Entry("training_networks", (1, 3, 192, 192)),
    "efficientnet_like": _Entry("training_networks", (1, 3, 192, 192)),
    "inception_like": _Entry("training_networks", (1, 3, 192, 192)),
    "mobilenet_v1_like": _Entry("training_networks", (1, 3, 160, 160)),
    "regnet_like": _Entry("training_networks", (1, 3, 160, 160)),
    "convnext_like": _Entry("training_networks", (1, 3, 160, 160)),
    "unet_like": _Entry("training_networks", (1, 3, 96, 96)),
    "vit_like": _Entry("training_networks", (1, 3, 168, 168)),
    "mixer_like": _Entry("training_networks", (1, 3, 120, 120)),
    "text_encoder": _Entry("training_networks", (1, 96), tokens=4000),
    "listener": _Entry("training_networks", (1, 80, 128)),
}

TRAINING = tuple(name for name, entry in _TORCH.items() if entry.module == "training_networks")
"""Networks whose tensor programs fill the shipped dataset."""


def export(name: str, folder: Path | str) -> Path:
    """Write one network as ``<folder>/<name>.onnx``; the same bytes each time.

    Parameters
    ----------
    name
        One of `HELD_OUT` or `TRAINING`.
    folder
        Made when missing.

    Returns
    -------
    Path
        The ONNX file.

    Raises
    ------
    BadInput
        When there is no such network.
    """
    from tcl.files import atomic_write

    if name == "squeezenet":
        content = _squeezenet()
    elif name in _TORCH:
        content = _exported(name)
    else:
        raise BadInput(
            f"there is no benchmark network {name!r}; known are {', '.join((*HELD_OUT, *TRAINING))}"
        )
    return atomic_write(Path(folder) / f"{name}.onnx", content)


def is_made_with_torch(name: str) -> bool:
    """Whether `build_module` can make the network's torch module."""
    return name in _TORCH


def build_module(name: str) -> tuple[Any, Any]:
    """The torch module of a network with its seeded weights, ready to run, and an example input.

    Raises
    ------
    BadInput
        When the network is not made with torch.
    """
    import importlib

    import torch

    if not is_made_with_torch(name):
        raise BadInput(f"{name} is not made with torch; known are {', '.join(_TORCH)}")
    entry = _TORCH[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        module = getattr(importlib.import_module(f"tcl.bench.{entry.module}"), name)()
        _initialise(module)
        example = torch.randint(entry.tokens, entry.shape) if entry.tokens else torch.randn(entry.shape)
    module.eval()
    return module, example


def _exported(name: str) -> bytes:
    import torch

    module, example = build_module(name)
    with torch.no_grad():
        results = module(example)
    count = len(results) if isinstance(results, tuple) else 1
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "network.onnx")
        torch.onnx.export(  # the exporter that needs no onnxscript, and takes a tenth of the time
            module,
            (example,),
            str(path),
            dynamo=False,
            opset_version=_OPSET,
            input_names=["input"],
            output_names=["output"] if count == 1 else [f"output{index}" for index in range(count)],
        )
        return path.read_bytes()


def _initialise(module: Any) -> None:
    """Draw weights that keep activations near unit size, and statistics that normalisation must use."""
    from torch import nn

    for layer in module.modules():
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.7, 1.1)
            nn.init.normal_(layer.bias, std=0.1)
            assert layer.running_mean is not None and layer.running_var is not None
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.8, 1.2)


def _squeezenet() -> bytes:
    """SqueezeNet 1.0 (Iandola et al., 2016, arXiv:1602.07360), from the file in the onnx package.

    The file stores no weights but nodes that fill them with a constant; here they are seeded random weights.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(str(folder / "light_squeezenet.onnx"))
    graph = model.graph
    rng = np.random.default_rng(_SEED)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    fills = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    weights = []
    for node in fills:
        shape = tuple(int(extent) for extent in shapes[node.input[0]])
        scale = 0.05 if len(shape) == 1 else np.sqrt(2 / np.prod(shape[1:]))
        values = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        weights.append(numpy_helper.from_array(values, node.output[0]))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in (*graph.initializer, *weights) if tensor.name in used]
    inputs = [value for value in graph.input if value.name in used - {tensor.name for tensor in kept}]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(inputs)
    return model.SerializeToString(deterministic=True)
