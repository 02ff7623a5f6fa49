"""The sizes of the tuning benchmark, and its cells: one contender, network and seed each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tcl.bench.networks import HELD_OUT
from tcl.bench.params import read_studies
from tcl.bench.tune_networks import SUBGRAPHS
from tcl.bench.tune_torch import ENGINES
from tcl.errors import BadInput

CONTENDERS = {
    "tcl": "TCL: cost model distilled from the other devices' records and this one's",
    "tcl-0": "the same, by the model's word alone (`--trials 0`)",
    "tenset-mlp": "MetaSchedule's evolutionary search with Tenset-MLP, trained on the same records",
    "xgb": "MetaSchedule's evolutionary search with XGBModel, cold",
    "random": "MetaSchedule's replay-trace: random draws",
    "stock": "MetaSchedule with XGBModel, its own builder and its own runner, as they come",
}


@dataclass(frozen=True)
class TuneParams:
    """One study of the section `tune` of `params.yaml`.

    Attributes
    ----------
    networks
        Names of `tcl.bench.networks` or `tcl.bench.tune_networks`, or paths of ONNX files.
    trials
        Contender (of `CONTENDERS`) to the candidates that it may measure.
    epochs
        Of each training of TCL's model; Tenset-MLP has its own 50.
    seeds
        Repetitions of each search. The models are trained once.
    visits
        How often MetaSchedule's budget would visit each task: its round is trials / (visits x tasks), at most 64.
    build_workers
        Build processes of our engine, for every contender.
    cell_minutes
        Time after which MetaSchedule begins no further round; what it has is its result, and the table says so.
    minutes
        Time after which no further search is begun; what was found is timed all the same.
    engines
        What the packages' latency is compared with: any of "onnxruntime", "torch", "torch-inductor".
    latency_rounds
        Fresh processes of each contender when whole networks are timed.
    """

    networks: tuple[str, ...]
    trials: dict[str, int] = field(default_factory=dict)
    epochs: int = 50
    seeds: int = 3
    visits: int = 2
    build_workers: int = 2
    cell_minutes: float = 20.0
    minutes: float = 120.0
    engines: tuple[str, ...] = ("onnxruntime",)
    latency_rounds: int = 3


@dataclass(frozen=True)
class Cell:
    """One search: `contender` is one of `CONTENDERS`."""

    network: str
    contender: str
    trials: int
    seed: int

    @property
    def name(self) -> str:
        """For files and tables."""
        return f"{Path(self.network).stem}.{self.contender}-{self.trials}.{self.seed}"


def cells(params: TuneParams) -> list[Cell]:
    """All searches, seed after seed, so that a run that is cut short has compared all contenders."""
    return [
        Cell(network, contender, trials, seed)
        for seed in range(params.seeds)
        for contender, trials in params.trials.items()
        for network in params.networks
    ]


def read_params(path: Path) -> dict[str, TuneParams]:
    """The studies in the section `tune` of a `params.yaml`, by name.

    Raises
    ------
    BadInput
        When the file or the section is missing, or a study has an unknown name.
    """
    studies = read_studies(path, "tune", TuneParams)
    known = (*HELD_OUT, *SUBGRAPHS)
    for study, params in studies.items():
        if unknown := set(params.trials) - set(CONTENDERS):
            raise BadInput(
                f"{path}: the study {study} has the unknown contender {min(unknown)}; "
                f"known are {', '.join(CONTENDERS)}"
            )
        if unknown := set(params.engines) - {"onnxruntime", *ENGINES}:
            raise BadInput(
                f"{path}: the study {study} has the unknown engine {min(unknown)}; "
                f"known are onnxruntime, {', '.join(ENGINES)}"
            )
        for network in params.networks:
            if network not in known and not network.endswith(".onnx"):
                raise BadInput(
                    f"{path}: the study {study} has the unknown network {network}; known are {', '.join(known)}"
                )
    return studies
