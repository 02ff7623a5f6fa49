"""What `tcl measure` says about the dataset it has grown."""

from __future__ import annotations

import pytest

from tcl.devices.device import Device
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.importers.importer import import_logs
from tcl.jobs import measure
from tcl.jobs.dataset import dataset
from tcl.jobs.measure import MeasureArguments
from tcl.settings import Settings

DEVICE = Device("d", {"kind": "llvm", "num-cores": 1})


@pytest.mark.parametrize(("programs", "warned"), [(2, True), (3, False)])
def test_version_warns_when_there_are_too_few_programs_to_learn_from(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, programs: int, warned: bool
) -> None:
    log = settings.root / "tuning.log"
    log.write_text(
        "".join(
            f'{{"i":[["[\\"matmul\\",[1,64],[64,{n + 1}]]","llvm"],[[],[]]],"r":[[1e-3],0,0.1,1],"v":"v0.6"}}\n'
            for n in range(programs)
        )
    )
    import_logs([log], DEVICE, dataset(settings))
    said: list[str] = []
    monkeypatch.setattr(measure, "note", said.append)
    measure.version(MeasureArguments(("model.onnx",), DEVICE.name), settings)
    assert [f"measurements of {programs} tensor programs" in line for line in said] == [True] * warned


def test_open_device_refuses_when_there_is_no_compiler(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeviceStore(settings.devices_dir).add(DEVICE)
    monkeypatch.setenv("PATH", str(settings.root))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BadInput, match="needs a C compiler"):
        measure.open_device(MeasureArguments(("model.onnx",), DEVICE.name), settings)
