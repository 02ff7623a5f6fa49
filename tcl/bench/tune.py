"""`tcl bench tune`: how soon, and how fast, against MetaSchedule with other cost models, side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from tcl.bench.learn import RESULTS
from tcl.bench.machine import machine, own_device, period
from tcl.bench.tune_figures import curves_csv, summarise
from tcl.bench.tune_plot import draw
from tcl.bench.tune_report import markdown
from tcl.bench.tune_run import Runner
from tcl.bench.tune_study import read_params
from tcl.errors import BadInput
from tcl.files import atomic_json, atomic_write
from tcl.settings import Settings


def bench_tune(
    settings: Settings, studies: Sequence[str], minutes: float | None = None
) -> dict[str, dict[str, Any]]:
    """Run studies of `params.yaml` and write `STUDY.json`, `.csv`, `.svg` and `report.md` of this device.

    They lie in `docs/results/tune/DEVICE`, and the searches behind them in `cells` there, from which a later run
    goes on.

    Parameters
    ----------
    settings
        Of the project folder, which holds `params.yaml` and the shipped records.
    studies
        Names in the section `tune` of `params.yaml`; none: all.
    minutes
        Bound of each study, instead of its own; 0 begins no search, but times packages and writes the results.

    Returns
    -------
    dict
        What is stored of each study, these and earlier ones, by name; `markdown` renders it.

    Raises
    ------
    BadInput
        When a study is unknown, this machine is no device with measurements, or a program that is tuned is in them.
    """
    known = read_params(settings.root / "params.yaml")
    if unknown := [name for name in studies if name not in known]:
        raise BadInput(f"there is no study {unknown[0]} in params.yaml; its studies are {', '.join(known)}")
    device = own_device(settings)
    folder = settings.root / RESULTS / "tune" / device.name
    for name in studies or known:
        params = known[name] if minutes is None else replace(known[name], minutes=minutes)
        runner = Runner(settings, params, device, settings.state_dir / "bench" / "tune", folder / "cells")
        missing = runner.run()
        about = {
            "command": f"tcl bench tune {name}",
            "device": device.name,
            "date": period(runner.days()),
            "machine": machine(),
            "params": asdict(params),
            "models": {key: value for key, value in runner.pretrained.about.items() if key != "of"},
            "missing": missing,
            "networks": summarise(runner),
        }
        atomic_json(folder / f"{name}.json", about)
        atomic_write(folder / f"{name}.csv", curves_csv(runner))
        if (picture := draw(runner)) is not None:
            atomic_write(folder / f"{name}.svg", picture)
    done = {
        name: json.loads(path.read_text()) for name in known if (path := folder / f"{name}.json").exists()
    }
    atomic_write(folder / "report.md", markdown(done))
    return done
