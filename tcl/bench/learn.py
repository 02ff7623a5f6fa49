"""`tcl bench learn`: are the sampler, the network and the distillation better than what they replace?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tcl.bench.learn_baselines import load_stores, numbered
from tcl.bench.learn_data import own_datasets, public_datasets
from tcl.bench.learn_report import markdown, plot_data, summarise
from tcl.bench.learn_run import run
from tcl.bench.learn_study import LearnParams, Study
from tcl.bench.machine import machine, period
from tcl.bench.params import read_studies
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.files import atomic_json, atomic_write
from tcl.records.store import RecordStore
from tcl.settings import Settings

RESULTS = Path("docs/results")


def bench_learn(
    settings: Settings, studies: Sequence[str], logs: Path | None = None, minutes: float | None = None
) -> dict[str, dict[str, Any]]:
    """Run studies of `params.yaml` and write `docs/results/learn_STUDY.json`, `.csv` (for plots) and `learn.md`.

    The measurements behind them are kept in `learn_STUDY.jsonl`, from which a later run goes on.

    Parameters
    ----------
    settings
        Of the project folder, which holds `params.yaml` and the shipped records.
    studies
        Names in the section `learn` of `params.yaml`; none: all whose data is there.
    logs
        Folder of the public Ansor logs, with a folder for each device.
    minutes
        Bound of each study, instead of its own.

    Returns
    -------
    dict
        What is stored of each study, these and earlier ones, by name; `markdown` renders it.

    Raises
    ------
    BadInput
        When a study is unknown or its data is missing.
    """
    known = read_studies(settings.root / "params.yaml", "learn", LearnParams)
    if unknown := [name for name in studies if name not in known]:
        raise BadInput(f"there is no study {unknown[0]} in params.yaml; its studies are {', '.join(known)}")
    for name, params in known.items():
        if name in studies or (not studies and (params.data == "shipped" or logs is not None)):
            _study(settings, name, params if minutes is None else replace(params, minutes=minutes), logs)
    folder = settings.root / RESULTS
    done = {
        name: json.loads(path.read_text())
        for name in known
        if (path := folder / f"learn_{name}.json").exists()
    }
    atomic_write(folder / "learn.md", markdown(done))
    return done


def _study(settings: Settings, name: str, params: LearnParams, logs: Path | None) -> None:
    cache = settings.state_dir / "bench" / "learn"
    measured = settings.root / RESULTS / f"learn_{name}.jsonl"
    found = run(_make_study(settings, params, logs, cache, cache / name), measured)
    about: dict[str, Any] = {
        "command": f"tcl bench learn {name}" + (" --logs FOLDER" if params.data == "public" else ""),
        "date": period(found.days),
        "machine": machine(),
        "params": asdict(params),
        "missing": len(found.missing),
        "summary": summarise(found.results),
    }
    atomic_json(settings.root / RESULTS / f"learn_{name}.json", about)
    atomic_write(settings.root / RESULTS / f"learn_{name}.csv", plot_data(about["summary"]))


def _make_study(settings: Settings, params: LearnParams, logs: Path | None, cache: Path, own: Path) -> Study:
    if params.data == "public":
        if logs is None:
            raise BadInput("this study needs the public logs; name their folder with --logs")
        datasets, seconds = public_datasets(logs, cache, params.first)
        return Study(datasets, params, own, seconds)
    store, known = RecordStore(settings.data_dir), DeviceStore(settings.devices_dir)
    devices = {name: known.get(name) for name in store.devices()}
    datasets, seconds = own_datasets(store, list(devices.values()), params.first)
    target = datasets[params.target] = numbered(datasets[params.target])
    stores = load_stores(store, devices[params.target], target, own / "stores.npz")
    return Study(datasets, params, own, seconds, stores)
