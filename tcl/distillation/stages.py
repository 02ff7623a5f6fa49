"""The stages of a distillation on disk, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tcl.console import note
from tcl.costmodel.checkpoint import MODEL, load_model, save_model
from tcl.costmodel.network import CostModel
from tcl.costmodel.training import TrainReport
from tcl.errors import BadInput
from tcl.files import atomic_write

Progress = Callable[[str, dict[str, float]], None]
"""Called after each epoch with the stage's name and the entry of its learning curve."""

Notify = Callable[[dict[str, float]], None]

Fit = Callable[[Notify, Path], tuple[CostModel, TrainReport]]
"""Trains a model; is told whom to notify after each epoch, and the folder for its state."""


class Stages:
    """Runs stages once: a finished one is read from its folder, an unfinished one goes on from its last epoch.

    Parameters
    ----------
    folder
        Where the stages are kept; what it holds of another distillation is deleted.
    fingerprint
        Hash of everything that the stages depend on.
    progress
        Told about each epoch.
    """

    def __init__(self, folder: Path, fingerprint: str, progress: Progress | None) -> None:
        self.folder = folder
        self.progress = progress
        about = folder / "fingerprint"
        if not about.exists() or about.read_bytes() != fingerprint.encode():
            shutil.rmtree(folder, ignore_errors=True)
            atomic_write(about, fingerprint)

    def run(self, stage: str, fit: Fit) -> tuple[CostModel, TrainReport]:
        """The model and the report of a stage, which `fit` trains unless it was finished before."""
        folder = self.folder / stage
        if (folder / MODEL).exists():  # written last
            try:
                model, metadata = load_model(folder)
                return model, TrainReport(**metadata["report"])
            except (BadInput, KeyError, TypeError) as error:
                note(f"the stage {stage} is done again: {error}")

        def notify(entry: dict[str, float]) -> None:
            if self.progress:
                self.progress(stage, entry)

        model, report = fit(notify, folder)
        save_model(model, folder, {"report": asdict(report)})
        return model, report
