"""Who chooses from a candidate pool: chance, or RDU with the best cost model at hand."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tcl.console import note
from tcl.devices.device import Device
from tcl.errors import TclError
from tcl.settings import Settings

if TYPE_CHECKING:
    from tcl.costmodel.network import CostModel
    from tcl.jobs.pool import Pool


class Sampler(Protocol):
    """Chooses candidates."""

    origin: str
    """What the records say of how they were chosen."""

    def choose(self, pool: "Pool", count: int, known: Sequence[int]) -> list[int]:
        """Numbers of `count` candidates of the pool besides those that are known; none when `count` is not positive."""


class RandomSampler:
    """Each candidate with equal chance; asking for more extends what a smaller count gives."""

    origin = "random"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def choose(self, pool: "Pool", count: int, known: Sequence[int]) -> list[int]:
        """See `Sampler.choose`."""
        order = np.random.default_rng([self.seed, len(pool)]).permutation(len(pool))
        fresh = order[~np.isin(order, known)]
        return fresh[: max(count, 0)].tolist()


class RduSampler:
    """Representative, diverse and uncertain candidates.

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

    def choose(self, pool: "Pool", count: int, known: Sequence[int]) -> list[int]:
        """See `Sampler.choose`."""
        from tcl.sampling.rdu import select

        if count <= 0:
            return []
        features = pool.features(self.device)
        if self.model is None:
            embeddings, uncertainty = _standardised(features.values), np.zeros(len(pool), np.float32)
            terms = frozenset("rd")
        else:
            embeddings, uncertainty = self.model.embed(features), self.model.score(features)[1]
            terms = frozenset("rdu")
        chosen = np.asarray(known, np.int64)
        return select(embeddings, uncertainty, count, chosen=chosen, terms=terms, seed=self.seed).tolist()


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


def _standardised(values: np.ndarray) -> np.ndarray:
    """float32[n, L, V] step values as float32[n, k] of those columns that differ between candidates."""
    flat = values.reshape(len(values), -1)
    spread = flat.std(axis=0)
    varying = spread > 1e-6
    return (flat[:, varying] - flat[:, varying].mean(axis=0)) / spread[varying]
