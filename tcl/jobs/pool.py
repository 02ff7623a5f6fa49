"""The candidate pool of one tensor program: what its design space offers, as features."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tcl.devices.device import Device
from tcl.features.batch import FeatureBatch
from tcl.features.device import device_descriptor
from tcl.search.evolution import Featuriser

if TYPE_CHECKING:
    from tcl.compiler.programs.tasks import TuningTask
    from tcl.search.space import DesignSpace, Population


@dataclass(frozen=True)
class Pool:
    """Candidates of one task, numbered over its sketches.

    Attributes
    ----------
    task, space
        The program and its design space.
    populations
        The candidates by sketch; candidate numbers run through them in this order.
    """

    task: "TuningTask"
    space: "DesignSpace"
    populations: "list[Population]"

    def __len__(self) -> int:
        return sum(len(population) for population in self.populations)

    def trace(self, number: int) -> str:
        """The trace of a candidate, without post-processing."""
        for population in self.populations:
            if number < len(population):
                return self.space.trace(population, number)
            number -= len(population)
        raise IndexError(number)

    def find(self, traces: Iterable[str]) -> list[int]:
        """Numbers of the candidates that recorded traces are of, in rising order."""
        recorded = Counter(_identity(trace) for trace in traces)
        numbers = []
        for number in range(len(self)) if recorded else ():
            identity = _identity(self.trace(number))
            if recorded[identity] > 0:
                recorded[identity] -= 1
                numbers.append(number)
        return numbers

    def features(self, device: Device) -> FeatureBatch:
        """What a cost model reads of every candidate."""
        featuriser = Featuriser(self.space, self.task.workload.summary, device_descriptor(device))
        return featuriser.batch(self.populations)


def draw_pool(task: "TuningTask", device: Device, size: int, seed: int) -> Pool:
    """Draw a task's pool; the same for the same program, device, size and seed."""
    from tcl.compiler.programs.tasks import design_space
    from tcl.compiler.targets import target_of

    space = design_space(task, target_of(device.target))
    rng = np.random.default_rng([seed, int(task.workload.key, 16)])
    return Pool(task, space, space.sample(size, rng))


def _identity(trace: str) -> str:
    """What a candidate's trace keeps when it is replayed: TVM moves a compute location that turns out invalid."""
    instructions, decisions = json.loads(trace)
    names = [instruction[0] for instruction in instructions]
    end = names.index("EnterPostproc") if "EnterPostproc" in names else len(names)
    kept = [d for d in decisions if d[0] < end and names[d[0]] != "SampleComputeLocation"]
    return json.dumps([instructions[:end], kept])
