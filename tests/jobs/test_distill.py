"""A distillation is registered once, whatever fails meanwhile."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tcl.costmodel.checkpoint import load_evaluated, load_model
from tcl.costmodel.network import CostModel, CostModelConfig, build_model
from tcl.devices.device import Device
from tcl.distillation.distill import DistillResult
from tcl.distillation.knowledge import KnowledgeBase
from tcl.errors import WorkFailed
from tcl.jobs.distill import Data, register
from tcl.registry.registry import Registry
from tcl.registry.versions import KNOWLEDGE_BASE, ModelVersion
from tcl.settings import Settings

DATA = Data(Device("dev", {"kind": "llvm", "num-cores": 1}), "abc.dir", "def.dir")


def result(seed: int) -> DistillResult:
    """A distillation that replaced the knowledge base."""
    config = CostModelConfig(width=16, layers=1)
    model: CostModel = build_model(config, seed)
    return DistillResult(
        model=model,
        evaluated=build_model(config, seed + 100),
        chosen="scratch",
        reason="",
        knowledge_base=KnowledgeBase(model, {}),
        knowledge_base_replaced=True,
        knowledge_base_reason="",
        metrics={},
        curves={},
        predicted=np.empty(0),
        measured=np.empty(0),
    )


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: str) -> None:
    """Let the next registration of an owner fail, as when the server is away."""
    real = Registry.register

    def fails(self: Registry, name: str, folder: Path, **about: object) -> ModelVersion:
        if name == owner:
            monkeypatch.setattr(Registry, "register", real)
            raise WorkFailed("the registry is away")
        return real(self, name, folder, **about)  # type: ignore[arg-type]

    monkeypatch.setattr(Registry, "register", fails)


@pytest.mark.parametrize("seed", [0, 1])  # the same result in another attempt; that of another distillation
def test_knowledge_base_gets_one_version_when_the_device_model_fails_to_register(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    registry = Registry(settings)
    fail_once(monkeypatch, "dev")
    with pytest.raises(WorkFailed):
        register(DATA, result(0), settings)
    report = register(DATA, result(seed), settings)
    assert [version.aliases for version in registry.versions(KNOWLEDGE_BASE)] == [("challenger", "champion")]
    assert report.knowledge_base == registry.resolve(KNOWLEDGE_BASE)
    assert [version.tags["knowledge_base_version"] for version in registry.versions("dev")] == ["1"]


def test_knowledge_base_gets_another_version_when_a_device_is_learnt_again(settings: Settings) -> None:
    register(DATA, result(0), settings)
    register(DATA, result(1), settings)
    register(replace(DATA, data_hash="new.dir"), result(2), settings)
    versions = Registry(settings).versions(KNOWLEDGE_BASE)
    assert [version.version for version in versions] == [3, 2, 1]
    assert "champion" in versions[0].aliases


@pytest.mark.parametrize("borrowed", [False, True])
def test_registered_model_comes_with_the_one_that_was_evaluated(settings: Settings, borrowed: bool) -> None:
    found = result(0)
    found.evaluated = found.model if borrowed else found.evaluated
    version = register(DATA, found, settings).model
    folder = Registry(settings).fetch(version)
    for loaded, saved in (
        (load_model(folder)[0], found.model),
        (load_evaluated(folder), found.evaluated),
    ):
        assert torch.equal(loaded.head_in, saved.head_in)
