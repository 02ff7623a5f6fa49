"""The experiments of the learning benchmark. Each cell trains on some workloads and is judged on held-out ones.

Seed s holds out fold s of the workloads, the same on every device, and seeds everything else: over as many seeds as
folds, each workload is judged once.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from tcl.bench import learn_baselines as baselines
from tcl.bench.learn_baselines import Stores
from tcl.bench.learn_data import each_task
from tcl.bench.learn_networks import Tlp
from tcl.bench.learn_streams import METHODS
from tcl.costmodel.checkpoint import load_model, save_model
from tcl.costmodel.groups import relevance
from tcl.costmodel.losses import target_score
from tcl.costmodel.metrics import mean_ratio, rank_correlation, top_k
from tcl.costmodel.network import CostModel, CostModelConfig, Scorer, build_model, parameter_count
from tcl.costmodel.splits import folds, split_tasks, take_tasks
from tcl.costmodel.training import TrainOptions, TrainReport, quality, train
from tcl.distillation.distill import active_column
from tcl.distillation.gates import consolidate
from tcl.distillation.knowledge import KnowledgeBase, load_knowledge_base, save_knowledge_base
from tcl.distillation.options import DistillOptions
from tcl.distillation.stages import Stages
from tcl.features.batch import FEATURE_VERSION
from tcl.features.dataset import LabelledDataset
from tcl.sampling.rdu import select

Metrics = dict[str, float]


@dataclass(frozen=True)
class LearnParams:
    """One study of the section `learn` of `params.yaml`.

    Attributes
    ----------
    data
        "public": the logs of three GPUs; "shipped": the records of this project's devices.
    first
        Only so many of the first records of each task; None: all.
    tables
        Any of "sampler", "network", "transfer", "ablation".
    seeds, folds
        Repetitions, and parts that the workloads are divided into.
    fraction, fractions
        Share of the pool that is labelled, and other shares for the table of samplers (besides all of it).
    first_rows
        Labels per task of the first device of a stream, and of the source of the sampler's model.
    visits, most_epochs
        Length of a training in candidates seen (epochs follow from the size of the data, at
        least 12), and its bound in epochs.
    budget_seconds
        Training time of the comparison at equal wall-clock time.
    source, target
        The device that is known and the one that is new, for all tables but transfer.
    orders
        Device streams of the table of transfer.
    minutes
        When no more cells are begun; what is missing then is missing in the tables, and said so.
    workers
        Processes, one thread each.
    """

    data: str = "public"
    first: int | None = 400
    tables: tuple[str, ...] = ("sampler", "network", "transfer", "ablation")
    seeds: int = 5
    folds: int = 5
    fraction: float = 0.1
    fractions: tuple[float, ...] = (0.02, 0.05, 0.2)
    first_rows: int = 100
    visits: int = 50_000
    most_epochs: int = 60
    budget_seconds: float = 30.0
    source: str = "k80"
    target: str = "v100"
    orders: tuple[tuple[str, ...], ...] = (("k80", "v100", "mi50"),)
    minutes: float = 60.0
    workers: int = 2


_HELD_OUT = TrainOptions().held_out  # of the labelled workloads, by which the gates decide


@dataclass(frozen=True)
class Learned:
    """A trained model with the training's seconds and the rows it learned."""

    model: CostModel
    seconds: float
    rows: int


@dataclass
class Study:
    """One data set with the experiments on it.

    Attributes
    ----------
    datasets
        By device; the same tasks in the same order on all (`common_tasks`).
    params
        Sizes.
    cache
        Where the models are kept that many cells begin with.
    encode_seconds
        Time to encode the features of one candidate.
    stores
        What TVM's own models read of the target's candidates; None where there are no programs.
    """

    datasets: dict[str, LabelledDataset]
    params: LearnParams
    cache: Path
    encode_seconds: float = 0.0
    stores: Stores | None = None

    def bracket(self, row: str, seed: int) -> Metrics:
        """A random scorer, or the oracle, on the held-out workloads of the target."""
        _, test = self.fold(self.params.target, seed)
        scores = np.random.default_rng(seed).random(len(test)) if row == "random" else -test.seconds
        return _judge(test, np.where(np.isfinite(scores), scores, -np.finfo(float).max))

    def sampler(self, terms: str, fraction: float, seed: int) -> Metrics:
        """The cost model from scratch on what a sampler chose; `terms` of "r", "d", "u", or "random"."""
        _, test = self.fold(self.params.target, seed)
        learned = self.scratch(self.params.target, terms, fraction, seed)
        return self.judged(learned.model, test, learned.seconds) | {"rows": learned.rows}

    def workloads(self, share: float, seed: int) -> Metrics:
        """The cost model from scratch on random rows of fewer workloads, which tells what more of them are worth."""
        _, test = self.fold(self.params.target, seed)
        chosen = self.chosen(self.params.target, "random", self.params.fraction, seed)
        order = np.random.default_rng(seed).permutation(len(chosen.keys))
        chosen = take_tasks(chosen, np.sort(order[: max(2, round(share * len(order)))]))
        model = build_model(CostModelConfig(), seed)
        report = self.fit(model, chosen, seed)
        return self.judged(model, test, report.seconds) | {"rows": len(chosen)}

    def network(self, name: str, equal: str, terms: str, seed: int) -> Metrics:
        """A network from scratch, each on the same rows, which a sampler chose; `equal` is "data" or "time"."""
        target, fraction = self.params.target, self.params.fraction
        _, test = self.fold(target, seed)
        if (name, equal) == (CostModelConfig().block, "data"):
            learned = self.scratch(target, terms, fraction, seed)
            return self.judged(learned.model, test, learned.seconds) | _trust(learned.model, test)
        chosen = self.chosen(target, terms, fraction, seed)
        if self.stores is not None and name in baselines.NAMES:
            scores, seconds, scoring = baselines.rank(name, self.stores, chosen, test, seed)
            rate = 1 / (self.stores.seconds + scoring / len(test))
            return _judge(test, scores) | {"seconds": seconds, "candidates_per_second": rate}
        model = make_network(name, seed)
        budget = self.params.budget_seconds if equal == "time" else None
        report = self.fit(model, chosen, seed, seconds=budget)
        return self.judged(model, test, report.seconds) | _trust(model, test)

    def transfer(self, method: str, order: tuple[str, ...], seed: int) -> Metrics:
        """Learn the devices of a stream one by one; judged on each new one, and on all earlier ones at the end."""
        tests = [self.fold(device, seed)[1] for device in order]
        run = METHODS[method](self, order, seed)
        new, before = [], [_share(run.remembering()[0], tests[0])]
        for device, test in zip(order[1:], tests[1:], strict=True):
            run.learn(device)
            new.append(_judge(test, run.models[-1].score(test.batch)[0]))
            before.append(_share(run.remembering()[-1], test))
        after = [_share(model, test) for model, test in zip(run.remembering(), tests, strict=True)]
        lost = max(first - last for first, last in zip(before[:-1], after[:-1], strict=True))
        found = {name: float(np.mean([metrics[name] for metrics in new])) for name in new[0]}
        return found | {"forgetting": lost, "parameters": run.parameters(), "seconds": run.seconds}

    def continual(self, seed: int) -> Metrics:
        """The full method on the target: what RDU chose, learned with the source device's knowledge base."""
        _, test = self.fold(self.params.target, seed)
        base = self.knowledge(self.params.source, seed)
        model, _, seconds = self.progress(base, self.params.target, "rdu", seed)
        about = {"parameters": parameter_count(model), "seconds": seconds}
        return _judge(test, model.score(test.batch)[0]) | about

    def fold(self, device: str, seed: int) -> tuple[LabelledDataset, LabelledDataset]:
        """(training, held-out) workloads of a seed."""
        parts = list(folds(self.datasets[device], self.params.folds, seed=0))
        return parts[seed % self.params.folds]

    def chosen(self, device: str, terms: str, fraction: float, seed: int) -> LabelledDataset:
        """What a sampler chooses of a device's training workloads; `terms` of "r", "d", "u", or "random"."""
        training, _ = self.fold(device, seed)
        if terms == "random":
            return self.draw(training, fraction, seed)
        return self.rdu(training, terms, fraction, seed)

    def draw(self, dataset: LabelledDataset, fraction: float, seed: int) -> LabelledDataset:
        """A random share of each task's candidates, at least two."""
        rng = np.random.default_rng(seed)
        return each_task(dataset, fraction, lambda rows, count: rng.permutation(rows)[:count])

    def rdu(self, dataset: LabelledDataset, terms: str, fraction: float, seed: int) -> LabelledDataset:
        """What RDU chooses of each task with the source device's knowledge base."""
        model = self.knowledge(self.params.source, seed).model
        embeddings, (_, spread) = model.embed(dataset.batch), model.score(dataset.batch)

        def choose(rows: np.ndarray, count: int) -> np.ndarray:
            return rows[select(embeddings[rows], spread[rows], count, terms=frozenset(terms), seed=seed)]

        return each_task(dataset, fraction, choose)

    def fit(
        self, model: Scorer, dataset: LabelledDataset, seed: int, *, seconds: float | None = None
    ) -> TrainReport:
        """Train on all rows for the params' visits, or for `seconds`; the report tells processor time."""
        started = time.process_time()
        report = train(model, dataset, self.options(len(dataset), seed, seconds))
        return replace(report, seconds=time.process_time() - started)

    def options(self, rows: int, seed: int, seconds: float | None = None) -> TrainOptions:
        """The training's options for so many rows: a fixed length, the same for every network."""
        epochs = (
            min(max(self.params.visits // rows, 12), self.params.most_epochs) if seconds is None else 10_000
        )
        return TrainOptions(epochs=epochs, seed=seed, seconds=seconds, patience=None, held_out=0.0)

    def knowledge(self, device: str, seed: int) -> KnowledgeBase:
        """The knowledge base that has learned one device, from its training workloads."""
        folder = self.cache / self.digest() / f"{device}-{seed}"
        if not (folder / "model.json").exists():
            training, _ = self.fold(device, seed)
            training = each_task(
                training,
                1.0,
                lambda rows, _: np.random.default_rng(seed).permutation(rows)[: self.params.first_rows],
            )
            model = build_model(CostModelConfig(), seed)
            self.fit(model, split_tasks(training, _HELD_OUT, seed)[0], seed)
            save_knowledge_base(self.compress(None, model, device, training, seed), folder, {})
        return load_knowledge_base(folder)[0]

    def scratch(self, device: str, terms: str, fraction: float, seed: int, held_out: float = 0.0) -> Learned:
        """The cost model from scratch on what a sampler chose of a device, which many cells look at."""
        folder = self.cache / self.digest() / f"{device}-{terms}-{fraction}-{held_out}-{seed}"
        if not (folder / "model.json").exists():
            chosen = self.chosen(device, terms, fraction, seed)
            if held_out:
                chosen, _ = split_tasks(chosen, held_out, seed)
            model = build_model(CostModelConfig(), seed)
            report = self.fit(model, chosen, seed)
            save_model(model, folder, {"seconds": report.seconds, "rows": len(chosen)})
        model, about = load_model(folder)
        return Learned(model, **about)

    def progress(
        self, knowledge_base: KnowledgeBase, device: str, terms: str, seed: int
    ) -> tuple[CostModel, CostModel, float]:
        """Learn a device beside the knowledge base, through the gate of negative transfer.

        Returns
        -------
        (model, evaluated, seconds)
            The model that learned all labelled workloads, the same as the gate saw it, and the time of all trainings.
        """
        fraction = self.params.fraction
        chosen = self.chosen(device, terms, fraction, seed)
        training, held = split_tasks(chosen, _HELD_OUT, seed)
        scratch = self.scratch(device, terms, fraction, seed, _HELD_OUT)
        column = active_column(knowledge_base, seed)
        seconds = scratch.seconds + self.fit(column, training, seed).seconds
        reached = [quality(held, model.score(held.batch)[0]) for model in (scratch.model, column)]
        if reached[1] <= reached[0]:
            whole = self.scratch(device, terms, fraction, seed)
            return whole.model, scratch.model, seconds + whole.seconds
        model = active_column(knowledge_base, seed)
        return model, column, seconds + self.fit(model, chosen, seed).seconds

    def compress(
        self,
        knowledge_base: KnowledgeBase | None,
        model: CostModel,
        device: str,
        dataset: LabelledDataset,
        seed: int,
    ) -> KnowledgeBase:
        """The knowledge base after a device; the forgetting gate looks at workloads that are not judged here."""
        options = self.options(len(dataset), seed)
        training, validation = split_tasks(dataset, _HELD_OUT, seed)
        with tempfile.TemporaryDirectory() as folder:
            stages = Stages(Path(folder) / "stages", "", None)
            distilling = DistillOptions(train=options)
            return consolidate(
                knowledge_base, model, device, training, validation, validation, distilling, stages
            )[0]

    def judged(self, model: Scorer, test: LabelledDataset, seconds: float) -> Metrics:
        """Everything a table may show of a model that was trained for so many seconds."""
        started = time.process_time()
        scores = model.score(test.batch)[0]
        rate = 1 / (self.encode_seconds + (time.process_time() - started) / len(test))
        about = {"parameters": parameter_count(model), "seconds": seconds, "candidates_per_second": rate}
        return _judge(test, scores) | about

    def digest(self) -> str:
        """Of all that a measurement depends on besides its arguments and the machine."""
        sizes = asdict(self.params)
        for name in ("minutes", "workers", "seeds", "orders", "fractions", "tables"):
            sizes.pop(name)  # which measurements there are, not what they give
        data = {
            name: [len(dataset), float(np.log(dataset.weights).sum())]
            for name, dataset in self.datasets.items()
        }
        parts = {"params": sizes, "data": data, "feature_version": FEATURE_VERSION}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def make_network(name: str, seed: int) -> Scorer:
    """A network by its name in the tables: "tlp", or a block of the cost model."""
    if name == "tlp":
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return Tlp()
    return build_model(replace(CostModelConfig(), block=name), seed)


def _judge(test: LabelledDataset, scores: np.ndarray) -> Metrics:
    """`top_k`, and the mean share of each task's best speed that the first k reach."""
    metrics = {f"top_{k}": top_k(test, scores, k) for k in (1, 5)}
    return metrics | {f"share_{k}": mean_ratio(test, scores, k) for k in (1, 5)}


def _share(model: Scorer, test: LabelledDataset) -> float:
    return mean_ratio(test, model.score(test.batch)[0], 1)


def _trust(model: Scorer, test: LabelledDataset) -> Metrics:
    """Rank correlation of the ensemble's spread with the absolute error of the score; 0 for a single head."""
    mean, spread = model.score(test.batch)
    if not spread.any():
        return {}
    error = np.abs(mean - target_score(torch.from_numpy(relevance(test))).numpy())
    return {"spread_error_correlation": rank_correlation(spread, error)}
