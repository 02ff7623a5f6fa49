"""Who chooses from a candidate pool: chance, or RDU with the best cost model at hand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tcl.console import note
from tcl.devices.device import Device
from tcl.errors import TclError
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.costmodel.network import CostModel
    from tcl.features.batch import FeatureBatch


class Candidates(Protocol):
    """What a sampler needs of a `tcl.jobs.pool.Pool`."""

    def __len__(self) -> int: ...
    def features(self, device: Device) -> "FeatureBatch": ...
    def find(self, traces: Iterable[str]) -> list[int]: ...


@dataclass(frozen=True)
class Wish:
    """How many candidates of a pool should be measured in the end.

    Attributes
    ----------
    pool
        The candidates.
    wanted
        How many.
    known
        Traces of the program that are measured already.
    """

    pool: Candidates
    wanted: int
    known: Sequence[str]


class Sampler(Protocol):
    """Chooses candidates."""

    origin: str
    """What the records say of how they were chosen."""

    def choose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """Numbers of the candidates to measure of each pool, besides those that are known."""


class RandomSampler:
    """Each candidate with equal chance; asking for more extends what a smaller count gives."""

    origin = "random"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def choose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """See `Sampler.choose`."""
        return [self._choose(wish.pool, wish.wanted - len(wish.known), wish.known) for wish in wishes]

    def _choose(self, pool: Candidates, count: int, known: Sequence[str]) -> list[int]:
        order = np.random.default_rng([self.seed, len(pool)]).permutation(len(pool))
        fresh = order[~np.isin(order, pool.find(known))]
        return fresh[: max(count, 0)].tolist()


class RduSampler:
    """Representative, diverse and uncertain candidates; more of the programs that the model is unsure of.

    Parameters
    ----------
    device
        The device that is measured.
    model
        Embeds candidates and tells how uncertain it is; None: the features stand for the embedding and all
        candidates are equally uncertain.
    seed
        Of the choice.
    """

    origin = "rdu"

    def __init__(self, device: Device, model: "CostModel | None", seed: int) -> None:
        self.device = device
        self.model = model
        self.seed = seed

    def choose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """See `Sampler.choose`."""
        from tcl.sampling.rdu import TERMS
        from tcl.sampling.tasks import most_share, select_tasks

        # What was measured beyond the greatest share, for another purpose, is no reason to measure less elsewhere.
        open_ = [i for i, wish in enumerate(wishes) if len(wish.known) <= most_share(wish.wanted)]
        left = sum(wishes[i].wanted - len(wishes[i].known) for i in open_)
        chosen: list[list[int]] = [[] for _ in wishes]
        if left <= 0:
            return chosen
        batches = [wishes[i].pool.features(self.device) for i in open_]
        known = [np.asarray(wishes[i].pool.find(wishes[i].known), np.int64) for i in open_]
        model = self.model or FeatureModel()
        terms = TERMS if self.model else TERMS - {"u"}
        picks = select_tasks(batches, model, left, chosen=known, terms=terms, seed=self.seed)
        for i, numbers in zip(open_, picks, strict=True):
            chosen[i] = numbers.tolist()
        return chosen


def open_sampler(name: str, device: Device, settings: Settings) -> Sampler:
    """Make the sampler of a name: ``random`` or ``rdu``."""
    if name == "random":
        return RandomSampler(settings.measure.seed)
    return RduSampler(device, _best_model(device, settings), settings.measure.seed)


def _best_model(device: Device, settings: Settings) -> "CostModel | None":
    """The device's champion, else the knowledge base, else nothing."""
    if settings.mlflow.tracking_uri is None and not (settings.root / "mlflow.db").exists():
        note("no cost model is registered yet; candidates are chosen by their features alone")
        return None
    from tcl.costmodel.checkpoint import load_model
    from tcl.registry.registry import Registry
    from tcl.registry.versions import KNOWLEDGE_BASE

    registry = Registry(settings)
    for owner in (device.name, KNOWLEDGE_BASE):
        versions = registry.versions(owner)
        if not versions:
            continue
        try:
            return load_model(registry.fetch(registry.resolve(owner)))[0]
        except TclError as error:  # choosing needs no particular model
            note(f"not used for choosing: {error}")
    note("no cost model can be used yet; candidates are chosen by their features alone")
    return None


class FeatureModel:
    """Stands in for a cost model where there is none: the features are the embedding, nothing is uncertain."""

    def score(self, batch: "FeatureBatch") -> tuple[np.ndarray, np.ndarray]:
        """Zeros."""
        return np.zeros(len(batch), np.float32), np.zeros(len(batch), np.float32)

    def embed(self, batch: "FeatureBatch") -> np.ndarray:
        """float32[n, k]: those step values that differ between candidates, standardised."""
        flat = batch.values.reshape(len(batch), -1)
        spread = flat.std(axis=0)
        varying = spread > 1e-6
        return (flat[:, varying] - flat[:, varying].mean(axis=0)) / spread[varying]
