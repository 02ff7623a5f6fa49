"""Stages of a distillation on disk."""

from pathlib import Path

import pytest

from tcl.costmodel.network import CostModel, CostModelConfig, build_model
from tcl.costmodel.training import TrainReport
from tcl.distillation.stages import Notify, Stages


@pytest.mark.parametrize("damaged", [None, "weights.safetensors", "model.json", "../fingerprint"])
def test_stage_is_done_again_only_when_what_is_kept_is_damaged(tmp_path: Path, damaged: str | None) -> None:
    done: list[str] = []

    def fit(notify: Notify, folder: Path) -> tuple[CostModel, TrainReport]:
        done.append(folder.name)
        return build_model(CostModelConfig(width=16, layers=1), 0), TrainReport([{"loss": 1.0}], 0, 2.0)

    Stages(tmp_path, "of this", None).run("scratch", fit)
    if damaged:
        (tmp_path / "scratch" / damaged).write_bytes(b"\xff")
    _, report = Stages(tmp_path, "of this", None).run("scratch", fit)
    assert report == TrainReport([{"loss": 1.0}], 0, 2.0)
    assert done == ["scratch"] * (2 if damaged else 1)
