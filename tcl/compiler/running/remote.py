"""Running a package on the board it was compiled for, from here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tcl.compiler.bootstrap import import_tvm
from tcl.compiler.packaging.manifest import Manifest
from tcl.compiler.running.rpc import BIG_CORES, SESSION_ENDED, await_board, open_session
from tcl.compiler.tensors import TensorSpec, check_feed
from tcl.errors import TclError, WrongResults

_MAIN = "main"


class RemotePackage:
    """A package on a board: call it as a `tcl.compiler.running.loader.Package`. Holds the board until it is dropped.

    Parameters
    ----------
    folder
        The package.
    rpc
        ``host`` and ``port`` of the tracker, and the board's ``key``.
    seconds
        What all of it may take.

    Raises
    ------
    DeviceLost
        From the constructor, when the board cannot be reached.
    """

    def __init__(self, folder: Path | str, rpc: Mapping[str, Any], seconds: float) -> None:
        self.manifest = Manifest.read(Path(folder))
        self._tvm = import_tvm(self.manifest.device.target)
        from tvm import relax

        session = open_session(rpc, seconds)
        session.get_function("runtime.config_threadpool")(BIG_CORES, self.manifest.cores)
        session.upload(str(Path(folder, self.manifest.library)), self.manifest.library)
        self._device = session.cpu()
        self._machine = relax.VirtualMachine(session.load_module(self.manifest.library), self._device)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, shapes and dtypes to feed."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, shapes and dtypes returned."""
        return self.manifest.outputs

    def __call__(self, feed: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run the model once."""
        self._feed(feed)
        self._machine.invoke_stateful(_MAIN)
        result = self._machine.get_outputs(_MAIN)
        results = [result] if len(self.outputs) == 1 else list(result)
        return {spec.name: value.numpy() for spec, value in zip(self.outputs, results, strict=True)}

    def time(self, feed: Mapping[str, Any], seconds: float, most: int) -> list[float]:
        """Seconds of each of at most `most` runs, by the board's own clock, in about so many seconds."""
        self._feed(feed)

        def runs(repeat: int) -> list[float]:
            evaluator = self._machine.time_evaluator("invoke_stateful", self._device, number=1, repeat=repeat)
            return list(evaluator(_MAIN).results)

        return runs(max(1, min(most, int(seconds / max(min(runs(2)), 1e-9)))))

    def _feed(self, feed: Mapping[str, Any]) -> None:
        arrays = check_feed(self.inputs, feed)
        tensors = [self._tvm.runtime.tensor(array, device=self._device) for array in arrays]
        self._machine.set_input(_MAIN, *tensors)


def run_on_board(rpc: Mapping[str, Any], work: Callable[[], None]) -> None:
    """Do `work` with a board, and tell what it fails with from a board that went away meanwhile.

    Raises
    ------
    DeviceLost
        When the board cannot be reached, or went away.
    WrongResults
        When the program ended its process on the board.
    """
    try:
        work()
    except TclError:
        raise
    except Exception as error:  # TVM raises its own classes
        await_board(rpc)
        if SESSION_ENDED in str(error):
            raise WrongResults("the program ended its process on the board") from error
        raise
