"""The list of models that follow champions."""

import json
import multiprocessing
from pathlib import Path

import pytest
from command_line import save_matmul

from tcl.devices.device import Device
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.jobs.subscriptions import subscribe, subscriptions, unsubscribe
from tcl.settings import Settings, load_settings

DEVICE = "dev"


@pytest.fixture
def model(settings: Settings) -> Path:
    """A model in a project with one device."""
    DeviceStore(settings.devices_dir).add(Device(DEVICE, {"kind": "llvm", "num-cores": 1}))
    path = settings.root / "nets" / "net.onnx"
    path.parent.mkdir()
    return save_matmul(path)


def test_subscribe_keeps_paths_within_the_project(settings: Settings, model: Path):
    added = subscribe(settings, model, DEVICE, shapes=("x=1x64",), trials=8)
    assert (added.model, added.output) == ("nets/net.onnx", "packages/dev/net")
    assert subscriptions(settings) == [added]
    assert subscriptions(settings, "other") == []


def test_subscribe_keeps_paths_outside_the_project_whole(settings: Settings, model: Path, tmp_path: Path):
    outside = save_matmul(tmp_path / "elsewhere.onnx")
    assert subscribe(settings, outside, DEVICE).model == str(outside)


def test_subscribe_changes_the_subscription_when_the_model_has_one(settings: Settings, model: Path):
    before = subscribe(settings, model, DEVICE, trials=8)
    after = subscribe(settings, model, DEVICE, trials=16)
    assert subscriptions(settings) == [after]
    assert before.key != after.key


def test_subscribe_refuses_when_another_model_has_the_output_folder(settings: Settings, model: Path):
    subscribe(settings, model, DEVICE)
    other = save_matmul(settings.root / "net.onnx")
    with pytest.raises(BadInput, match=r"packages/dev/net is the package of nets/net\.onnx"):
        subscribe(settings, other, DEVICE)
    with pytest.raises(BadInput, match="choose another folder"):
        subscribe(settings, other, DEVICE, settings.root / "packages" / "z" / ".." / DEVICE / "net")
    subscribe(settings, other, DEVICE, settings.root / "packages" / "other")
    assert len(subscriptions(settings)) == 2


def test_subscribe_changes_the_subscription_when_the_path_is_written_otherwise(
    settings: Settings, model: Path
):
    subscribe(settings, model, DEVICE)
    subscribe(settings, model.parent / ".." / "nets" / model.name, DEVICE, trials=4)
    assert [(item.model, item.trials) for item in subscriptions(settings)] == [("nets/net.onnx", 4)]
    unsubscribe(settings, model.parent / ".." / "nets" / model.name, DEVICE)
    assert subscriptions(settings) == []


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (("bogus",), "--shape bogus"),
        (("nosuch=1x64",), "nosuch"),
        (("x=1x65",), "65"),
    ],
)
def test_subscribe_refuses_shapes_that_compiling_would_refuse(
    settings: Settings, model: Path, shapes: tuple[str, ...], message: str
):
    with pytest.raises(BadInput, match=message):
        subscribe(settings, model, DEVICE, shapes=shapes)
    assert subscriptions(settings) == []


def test_subscribe_refuses_a_truncated_model(settings: Settings, model: Path):
    model.write_bytes(model.read_bytes()[:-200])
    with pytest.raises(BadInput, match="truncated"):
        subscribe(settings, model, DEVICE)


def test_subscribe_refuses_when_model_device_or_folder_are_wrong(settings: Settings, model: Path):
    with pytest.raises(BadInput, match="no such ONNX file"):
        subscribe(settings, settings.root / "absent.onnx", DEVICE)
    with pytest.raises(BadInput, match="unknown"):
        subscribe(settings, model, "unknown")
    with pytest.raises(BadInput, match="is no part of a package"):
        subscribe(settings, model, DEVICE, model.parent)
    assert subscriptions(settings) == []


def test_unsubscribe_removes_one_and_names_the_known_when_there_is_none(settings: Settings, model: Path):
    added = subscribe(settings, model, DEVICE)
    with pytest.raises(BadInput, match=r"subscribed are: nets/net\.onnx on dev"):
        unsubscribe(settings, "other.onnx", DEVICE)
    assert unsubscribe(settings, model, DEVICE) == added
    assert subscriptions(settings) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"format_version": 9, "subscriptions": []}',
        '{"format_version": 1, "subscriptions": [{}]}',
    ],
)
def test_subscriptions_name_the_file_when_it_is_damaged(settings: Settings, model: Path, content: str):
    settings.subscriptions_file.write_text(content)
    with pytest.raises(BadInput, match=r"subscriptions\.json: this is no list of subscriptions"):
        subscriptions(settings)
    with pytest.raises(BadInput):
        subscribe(settings, model, DEVICE)
    assert settings.subscriptions_file.read_text() == content


def _subscribe_many(root: Path, first: int) -> None:
    settings = load_settings(root, environ={})
    for number in range(first, first + 10):
        subscribe(settings, save_matmul(root / f"net{number}.onnx"), DEVICE)


def test_no_subscription_is_lost_when_two_processes_subscribe_at_once(settings: Settings, model: Path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_subscribe_many, args=(settings.root, first)) for first in (0, 10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(subscriptions(settings)) == 20
    assert json.loads(settings.subscriptions_file.read_text())["format_version"] == 1


@pytest.mark.parametrize(
    "change", [{"device": "../../dev"}, {"trials": "8"}, {"trials": -1}, {"shapes": [1]}, {"output": 1}]
)
def test_subscriptions_refuse_a_list_that_somebody_spoiled(settings: Settings, model: Path, change: dict):
    subscribe(settings, model, DEVICE)
    content = json.loads(settings.subscriptions_file.read_text())
    content["subscriptions"][0] |= change
    settings.subscriptions_file.write_text(json.dumps(content))
    with pytest.raises(BadInput, match="no list of subscriptions"):
        subscriptions(settings)


def test_subscriptions_refuse_a_list_that_is_nested_deeply(settings: Settings):
    settings.subscriptions_file.write_text("[" * 100_000)
    with pytest.raises(BadInput, match="no list of subscriptions"):
        subscriptions(settings)
