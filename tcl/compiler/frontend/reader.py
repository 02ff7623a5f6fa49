"""ONNX files: bytes to a whole, self-consistent model, or one sentence that says what is wrong."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from tcl.errors import BadInput

_CHUNK = 1 << 20
_PROTOBUF_LIMIT = 1 << 30  # a message may have twice that, and grows on its way


def load_onnx(path: Path) -> tuple[Any, str]:
    """Read an ONNX model with its external data.

    Parameters
    ----------
    path
        The ``.onnx`` file. External data must lie in its folder.

    Returns
    -------
    (onnx.ModelProto, str)
        The model, functions inlined, with all weights in it unless they are more than a message can hold: then
        external data stays where it is (`saved_onnx` takes it along). The SHA-256, in hex, of the file and, in the
        order of their names, of the external data files.

    Raises
    ------
    BadInput
        When the file is missing, no ONNX model, damaged, or when its graph has a cycle or uses values nobody
        makes.
    """
    import onnx

    model = _read_graph(path)
    external = _external_files(path, model.graph)
    digest = _digest(path, external)
    if sum(file.stat().st_size for file in (path, *external)) <= _PROTOBUF_LIMIT:
        try:
            onnx.load_external_data_for_model(model, str(path.parent))
        except Exception as error:  # onnx raises ValidationError, ValueError and OSError alike
            raise BadInput(f"{path}: the external data cannot be read: {first_line(error)}") from None
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    _check_values(path, model.graph, frozenset())
    return model, digest


def digest_onnx(path: Path) -> str:
    """Return the SHA-256 that `load_onnx` returns, without reading the weights into memory.

    Raises
    ------
    BadInput
        When the file is missing, no ONNX model, or lacks external data.
    """
    return _digest(path, _external_files(path, _read_graph(path).graph))


def _read_graph(path: Path) -> Any:
    """An ONNX file without its external data, if it is one."""
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise BadInput(f"{path}: no such ONNX file")
    try:
        model = onnx.load_model(str(path), load_external_data=False)
    except (DecodeError, UnicodeDecodeError):
        raise BadInput(
            f"{path}: this is no ONNX model, or a truncated one; export or download it again"
        ) from None
    if not model.HasField("graph") or not model.graph.output:
        raise BadInput(f"{path}: this is no ONNX model, or an empty one: it has no graph with outputs")
    if not model.opset_import:
        raise BadInput(f"{path}: the model names no operator set; export it again")
    return model


@contextmanager
def saved_onnx(model: Any, folder: Path) -> Iterator[Path]:
    """Write a model to a temporary file for the block, with what is left of its external data beside it.

    Parameters
    ----------
    model
        From `load_onnx`.
    folder
        Of the file it was read from.
    """
    import onnx

    with tempfile.TemporaryDirectory(prefix="tcl-onnx-") as scratch:
        path = Path(scratch, f"{uuid.uuid4().hex}.onnx")  # the name of no external data
        onnx.save_model(model, str(path))
        for name in external_locations(model.graph):
            place = Path(scratch, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            source = (folder / name).resolve()
            try:
                os.link(source, place)  # onnxruntime follows no symbolic links
            except OSError:  # the folder of temporary files is on another disk
                shutil.copyfile(source, place)
        yield path


def external_locations(graph: Any) -> list[str]:
    """Return the names of the files that hold a model's weights, relative to its folder."""
    from onnx import TensorProto

    return sorted(
        {
            entry.value
            for tensor in _tensors(graph)
            if tensor.data_location == TensorProto.EXTERNAL
            for entry in tensor.external_data
            if entry.key == "location"
        }
    )


def subgraphs(node: Any) -> Iterator[Any]:
    """Yield the graphs in a node's attributes (branches of If, bodies of Loop and Scan)."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(graph: Any) -> Iterator[Any]:
    """Yield every node of a graph and of the graphs in it."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def describe(node: Any, index: int | None = None) -> str:
    """Name a node for an error message."""
    if node.name:
        return f"node {node.name!r}"
    return f"the unnamed node that makes {node.output[0]!r}" if node.output else f"node {index}"


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's text, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in subgraphs(node):
            yield from _tensors(inner)


def _external_files(path: Path, graph: Any) -> list[Path]:
    """Check that every external tensor lies within a file of the model's folder; return the files."""
    import onnx

    folder = path.parent.resolve()
    files = {}
    for tensor in _tensors(graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        where = f"{path}: the weights {tensor.name!r} are stored in {location!r}"
        if not location or PurePosixPath(location).is_absolute() or ".." in PurePosixPath(location).parts:
            raise BadInput(f"{where}, which is not a file in the model's folder; export the model again")
        try:
            file = (folder / location).resolve()
            exists = file.is_file()
        except (OSError, ValueError) as error:  # too long, or a NUL in it
            raise BadInput(f"{where[:200]}, which can be no file ({first_line(error)[:80]})") from None
        if not file.is_relative_to(folder):
            raise BadInput(f"{where}, which leads out of the model's folder; copy the file into it")
        if not exists:
            raise BadInput(f"{where}, which does not exist; put that file beside the model")
        try:
            start, length = int(entries.get("offset", 0)), int(entries.get("length", 0))
        except ValueError:
            raise BadInput(f"{where} at an offset that is no number; export the model again") from None
        if start < 0 or length < 0 or start + length > file.stat().st_size:
            raise BadInput(f"{where}, which is too short for them: the file is truncated")
        files[file.relative_to(folder).as_posix()] = file
    return [files[name] for name in sorted(files)]


def _digest(path: Path, external: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in (path, *external):
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _check_values(path: Path, graph: Any, outer: frozenset[str]) -> None:
    """Check that every value a graph uses is made by someone, and that an order of execution exists."""
    given = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    given |= {sparse.values.name for sparse in graph.sparse_initializer}
    made = {name for node in graph.node for name in node.output}
    visible = outer | given | made
    pending = list(enumerate(graph.node))
    for index, node in pending:
        for name in node.input:
            if name and name not in visible:
                raise BadInput(
                    f"{path}: {describe(node, index)} ({node.op_type}) uses {name!r}, which is neither an"
                    " input nor a weight nor made by another node; the model is incomplete, export it again"
                )
        for inner in subgraphs(node):
            _check_values(path, inner, visible)
    for value in graph.output:
        if value.name not in visible:
            raise BadInput(f"{path}: no node makes the output {value.name!r}; export the model again")
    ready = set(outer | given)
    while pending:
        waiting = []
        for index, node in pending:  # one pass when the nodes are sorted, as ONNX demands
            if any(name and name not in ready for name in node.input):
                waiting.append((index, node))
            else:
                ready.update(node.output)
        if len(waiting) == len(pending):
            index, node = waiting[0]
            raise BadInput(f"{path}: the graph has a cycle through {describe(node, index)} ({node.op_type})")
        pending = waiting
