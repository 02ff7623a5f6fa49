"""Dividing a measuring budget over programs, and going on after an interruption."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from costmodel.synthetic import random_batch

from tcl.costmodel.network import CostModelConfig, build_model
from tcl.devices.device import Device
from tcl.features.batch import FeatureBatch
from tcl.jobs.sampler import RandomSampler, RduSampler, Sampler, Wish

DEVICE = Device("board", {"kind": "llvm", "num-cores": 1})
MODEL = build_model(CostModelConfig(width=16), 0)


@dataclass
class NumberedPool:
    """A pool without programs: a candidate's trace is its number."""

    batch: FeatureBatch

    def __len__(self) -> int:
        return len(self.batch)

    def features(self, device: Device) -> FeatureBatch:
        return self.batch

    def find(self, traces: Iterable[str]) -> list[int]:
        return sorted(map(int, traces))


POOLS = [NumberedPool(random_batch(40, 6, seed)) for seed in range(3)]
SAMPLERS: list[Sampler] = [RandomSampler(0), RduSampler(DEVICE, MODEL, 0), RduSampler(DEVICE, None, 0)]


def _wishes(known: list[list[int]], wanted: int = 6) -> list[Wish]:
    return [Wish(pool, wanted, [*map(str, rows)]) for pool, rows in zip(POOLS, known, strict=True)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=("random", "rdu", "features"))
def test_budget_is_spent_whole_and_nothing_is_left_when_it_is_measured(sampler: Sampler) -> None:
    chosen = sampler.choose(_wishes([[], [], []]))
    assert sum(map(len, chosen)) == 18
    assert all(len(set(rows)) == len(rows) for rows in chosen)
    assert sampler.choose(_wishes(chosen)) == [[], [], []]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=("random", "rdu", "features"))
def test_interrupted_measurement_is_completed_with_other_candidates(sampler: Sampler) -> None:
    first = [rows[:3] for rows in sampler.choose(_wishes([[], [], []]))]
    second = sampler.choose(_wishes(first))
    assert sum(map(len, first)) + sum(map(len, second)) == 18
    assert all(not set(a) & set(b) for a, b in zip(first, second, strict=True))


def test_rdu_measures_other_programs_when_one_was_measured_far_beyond_its_share() -> None:
    chosen = SAMPLERS[1].choose(_wishes([[*range(40)], [], []], wanted=9))
    assert not chosen[0]
    assert chosen[1] or chosen[2]


def test_rdu_gives_more_to_the_program_that_the_model_is_less_sure_of() -> None:
    unsure = sorted(range(3), key=lambda task: -MODEL.score(POOLS[task].batch)[1].mean())
    sizes = [len(rows) for rows in SAMPLERS[1].choose(_wishes([[], [], []], wanted=10))]
    assert sizes[unsure[0]] > sizes[unsure[-1]]
