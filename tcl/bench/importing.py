"""`tcl bench import`: records a second and peak memory of reading logs into an empty store."""

import json
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tcl.errors import WorkFailed
from tcl.settings import Settings


@dataclass(frozen=True)
class ImportCost:
    """What reading some logs took.

    Attributes
    ----------
    copies
        How often the logs were read, each time as other records.
    lines, broken
        Lines of all copies, and those that are no record.
    seconds, lines_per_second
        Wall-clock time, and lines over it.
    peak_bytes
        Largest resident memory of the process.
    """

    copies: int
    lines: int
    broken: int
    seconds: float
    lines_per_second: float
    peak_bytes: int


def bench_import(settings: Settings, logs: Sequence[Path], copies: int) -> dict[str, Any]:
    """Import the logs once, and `copies` times as often, each in a process and a store of its own.

    Raises
    ------
    BadInput
        When no log is there.
    WorkFailed
        When a process fails, with its last words.
    """
    from tcl.console import progress
    from tcl.importers.importer import find_logs
    from tcl.processes import run_module

    files = [str(path.resolve()) for path in find_logs(logs)]
    folder = settings.state_dir / "bench" / "import"
    costs = []
    sizes = sorted({1, copies})
    with progress("importing", len(sizes)) as advance:
        for size in sizes:
            shutil.rmtree(folder, ignore_errors=True)
            done = run_module("tcl.bench.importing", [str(folder), str(size), *files])
            if done.returncode:
                raise WorkFailed(
                    f"the import failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
                )
            costs.append(ImportCost(**json.loads(done.stdout.splitlines()[-1])))
            advance(detail=f"{costs[-1].lines} lines")
    shutil.rmtree(folder)
    return {"costs": [asdict(cost) for cost in costs]}


def lines(results: dict[str, Any]) -> list[str]:
    """The results as a Markdown table."""
    head = [
        "| copies | lines | broken | seconds | lines/s | peak memory, MB |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    return head + [
        f"| {c['copies']} | {c['lines']:,} | {c['broken']:,} | {c['seconds']:.1f} | {c['lines_per_second']:,.0f} "
        f"| {c['peak_bytes'] / 1e6:.0f} |"
        for c in results["costs"]
    ]


def _main(folder: str, copies: str, *files: str) -> None:
    from tcl.devices.device import Device
    from tcl.importers.importer import import_logs
    from tcl.records.store import RecordStore

    store, found, broken = RecordStore(Path(folder)), 0, 0
    start = time.perf_counter()
    for copy in range(int(copies)):
        # Records of another device are other records, so none is known yet.
        device = Device(f"copy-{copy}", {"kind": "llvm", "num-cores": 1})
        report = import_logs([Path(file) for file in files], device, store, tolerate=1.0)
        found, broken = found + report.lines, broken + report.broken
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(asdict(ImportCost(int(copies), found, broken, seconds, found / seconds, peak))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
