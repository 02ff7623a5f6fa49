"""What a person compares before a promotion: a new cost model and the champion on the same held-out programs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tcl.console import note
from tcl.errors import TclError

if TYPE_CHECKING:
    import numpy as np

    from tcl.distillation.distill import DistillResult
    from tcl.features.dataset import LabelledDataset
    from tcl.registry.registry import Registry

_KS = (1, 5)


def compare(
    registry: "Registry", device: str, result: "DistillResult", kinds: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Evaluate a distilled model by kind of program, and the device's champion beside it.

    Parameters
    ----------
    registry, device
        Where the champion is.
    result
        The model's scores of held-out candidates.
    kinds
        Kind of each program, by workload key.

    Returns
    -------
    (dict, dict)
        Metrics ``top_1/KIND`` and ``top_5/KIND`` of the new model, and all of the champion's with the prefix
        ``champion/``; the tag that names the champion, when there is one that can read these features.
    """
    from tcl.costmodel.checkpoint import load_evaluated
    from tcl.costmodel.metrics import top_ks
    from tcl.registry.versions import CHAMPION, COMPARED_WITH, THEIRS

    held_out = result.held_out
    if held_out is None:
        return {}, {}
    metrics = by_kind(held_out, result.predicted, kinds)
    champion = next((known for known in registry.versions(device) if CHAMPION in known.aliases), None)
    if champion is None:
        return metrics, {}
    try:
        scores = load_evaluated(registry.fetch(champion)).score(held_out.batch)[0]
        its = {**top_ks(held_out, scores, _KS), **by_kind(held_out, scores, kinds)}
    except TclError as error:
        note(f"not compared with the champion: {error}")
        return metrics, {}
    metrics |= {THEIRS + name: value for name, value in its.items()}
    return metrics, {COMPARED_WITH: str(champion.version)}


def by_kind(dataset: "LabelledDataset", scores: "np.ndarray", kinds: Mapping[str, str]) -> dict[str, float]:
    """Top-1 and top-5 of the programs of each kind, as ``top_1/conv2d``."""
    import numpy as np

    from tcl.costmodel.metrics import top_ks
    from tcl.costmodel.splits import take_tasks

    metrics: dict[str, float] = {}
    own = [kinds.get(key, "other") for key in dataset.keys]
    for kind in sorted(set(own)):
        tasks = np.array([index for index, name in enumerate(own) if name == kind])
        rows = np.isin(dataset.task, tasks)
        part = take_tasks(dataset, tasks)
        metrics |= {f"{name}/{kind}": value for name, value in top_ks(part, scores[rows], _KS).items()}
    return metrics
