import json
from pathlib import Path

import pytest

from tcl.devices.device import Device
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput

TARGET = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}


def test_get_returns_what_add_recorded(tmp_path: Path) -> None:
    store = DeviceStore(tmp_path / "devices")
    device = Device("b.1", TARGET, facts={"cores": 2})
    assert store.list() == []
    store.add(device)
    store.add(Device("a", TARGET))
    assert store.get("b.1") == device
    assert [known.name for known in store.list()] == ["a", "b.1"]


def test_add_keeps_recorded_device_when_only_facts_differ(tmp_path: Path) -> None:
    store = DeviceStore(tmp_path)
    first = store.add(Device("a", TARGET, facts={"cpu_model": "one", "l2_bytes": 1}))
    for facts in ({"cpu_model": "one", "l2_bytes": 2}, {}):
        assert store.add(Device("a", TARGET, facts=facts)) == first == store.get("a")


def test_add_refuses_when_name_stands_for_another_target(tmp_path: Path) -> None:
    store = DeviceStore(tmp_path)
    store.add(Device("a", TARGET))
    with pytest.raises(BadInput, match="another target"):
        store.add(Device("a", {**TARGET, "num-cores": 4}))


def test_add_refuses_when_name_stands_for_another_cpu(tmp_path: Path) -> None:
    store = DeviceStore(tmp_path)
    store.add(Device("a", TARGET, facts={"cpu_model": "one"}))
    with pytest.raises(BadInput, match="exists as the CPU 'one' and this is 'two'"):
        store.add(Device("a", TARGET, facts={"cpu_model": "two"}))
    store.add(Device("b", TARGET, facts={"cpu_model": "one", "cpu": "znver3"}))
    with pytest.raises(BadInput, match=r"exists as the CPU 'one \(znver3\)' and this is 'one \(znver4\)'"):
        store.add(Device("b", TARGET, facts={"cpu_model": "one", "cpu": "znver4"}))


def test_get_names_known_devices_when_unknown(tmp_path: Path) -> None:
    store = DeviceStore(tmp_path)
    store.add(Device("a", TARGET))
    with pytest.raises(BadInput, match="'b' is unknown; known devices: a"):
        store.get("b")


def test_get_refuses_when_name_leaves_the_folder(tmp_path: Path) -> None:
    DeviceStore(tmp_path).add(Device("a", TARGET))
    with pytest.raises(BadInput, match="no device name"):
        DeviceStore(tmp_path / "inner").get("../a")


def test_list_names_the_file_when_it_cannot_be_a_devices(tmp_path: Path) -> None:
    DeviceStore(tmp_path).add(Device("a", TARGET))
    (tmp_path / "Bad Name.json").write_text("{}")
    with pytest.raises(BadInput, match=r"/Bad Name\.json: 'Bad Name' is no device name"):
        DeviceStore(tmp_path).list()


@pytest.mark.parametrize(
    "content", ["", "{", "\xff", "[]", '{"name": "a"}', json.dumps({"name": "b", "target": TARGET})]
)
def test_get_names_file_when_it_is_broken(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content, encoding="latin-1")
    with pytest.raises(BadInput, match=r"a\.json"):
        DeviceStore(tmp_path).get("a")
