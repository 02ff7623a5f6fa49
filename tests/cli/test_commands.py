"""The command line as a user meets it: exit codes, JSON, one sentence for each error."""

import json
import socket

import pytest
from click.testing import CliRunner

from tcl.cli.commands import COMMANDS, LazyGroup, cli
from tcl.cli.main import main
from tcl.devices.device import Device
from tcl.devices.store import DeviceStore


def test_help_lists_every_command():
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_explains_itself(name):
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage: " in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["measure"],
        ["measure", "x.onnx"],
        ["measure", "x.onnx", "--device", "host", "--budget", "0"],
        ["measure", "x.onnx", "--device", "host", "--budget", "9" * 30],
        ["measure", "x.onnx", "--device", "host", "--budget-seconds", "inf"],
        ["measure", "x.onnx", "--device", "host", "--budget-seconds", "nan"],
        ["distill", "--device", "host", "--seed", "9" * 26],
        ["compile", "x.onnx", "--device", "host", "-o", "p", "--trials", "9" * 30],
        ["serve", "--port", "99999"],
        ["compile", "x.onnx", "--device", "host"],
        ["compile", "x.onnx", "--device", "host", "-o", "p", "--alias", "best"],
        ["compile", "x.onnx", "--device", "host", "-o", "p", "--alias", "champion", "--version", "1"],
        ["compile", "x.onnx", "--device", "host", "-o", "p", "--trials", "-1"],
        ["device", "add", "pi4"],
        ["device", "add", "pi4", "--target", "{"],
        ["device", "add", "pi4", "--target", "{}"],
        ["device", "add", "pi4", "--target", '{"kind": "llvm"}'],
        ["device", "add", "pi4", "--target", '{"kind": "foo"}'],
        [
            "device",
            "add",
            "pi4",
            "--target",
            '{"kind": "llvm", "num-cores": 1, "x": ' + "[" * 900 + "]" * 900 + "}",
        ],
        ["device", "add", "../pi4", "--target", '{"kind": "llvm", "num-cores": 1}'],
        ["device", "add", "pi4", "--target", '{"kind": "llvm", "num-cores": 1}', "--rpc", "host:9190"],
        [
            "device",
            "add",
            "pi4",
            "--target",
            '{"kind": "llvm", "num-cores": 1}',
            "--rpc",
            "host",
            "--key",
            "k",
        ],
        ["device", "show", "unknown"],
        ["distill", "--device", "unknown"],
        ["run", "no-package"],
        ["run", "no-package", "--benchmark", "--input", "x.npz"],
        ["import", "no-log.json", "--device", "unknown"],
        ["models", "promote", "host", "zero"],
        ["models", "promote", "../x", "1"],
        ["models", "promote", "", "1"],
        ["models", "promote", "x'y", "1"],
        ["subscribe", "no-model.onnx"],
        ["bench", "export", "no-such-network"],
    ],
    ids=" ".join,
)
def test_command_exits_2_when_its_usage_or_input_is_bad(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_json_holds_one_object_when_the_command_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["device", "show", "unknown", "--json"])
    answer = json.loads(result.stdout)
    assert answer["exit_code"] == result.exit_code == 2
    assert answer["error"] in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile"],
        ["nonsense"],
        ["device", "nonsense"],
        ["measure", "x.onnx", "--device", "d", "--budget", "-3"],
    ],
)
def test_json_holds_one_object_when_the_usage_is_bad(arguments):
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    answer = json.loads(result.stdout)
    assert answer["exit_code"] == result.exit_code == 2
    assert answer["error"] in result.stderr


@pytest.mark.parametrize("name", ["models", "subscribe"])
def test_list_is_json_when_no_command_is_named(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, [name, "--json"])
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout).values()) == [[]]


def test_models_ui_refuses_a_port_that_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = str(listening.getsockname()[1])
        result = CliRunner().invoke(cli, ["models", "ui", "--port", port])
    assert result.exit_code == 2
    assert result.stderr == f"tcl: port {port} is taken: choose another with --port\n"


def test_settings_error_names_its_source_when_a_variable_is_wrong(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TCL_TUNING_TRIALS", "many")
    result = CliRunner().invoke(cli, ["device", "list"])
    assert result.exit_code == 2
    assert "TCL_TUNING_TRIALS" in result.stderr


def test_device_add_then_show_gives_the_device_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 4}
    arguments = ["--target", json.dumps(target), "--rpc", "board:9190", "--key", "pi4"]
    assert CliRunner().invoke(cli, ["device", "add", "pi4", *arguments]).exit_code == 0
    device = json.loads(CliRunner().invoke(cli, ["device", "show", "pi4", "--json"]).stdout)["device"]
    assert device["target"] == target
    assert device["rpc"] == {"host": "board", "port": 9190, "key": "pi4"}


def test_device_list_says_what_is_not_at_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = DeviceStore(tmp_path / "devices")
    store.add(Device("here", {"kind": "llvm", "num-cores": 1}))
    store.add(Device("elsewhere", {"kind": "llvm", "num-cores": 1}, facts={"cpu_model": "Another CPU"}))
    lines = CliRunner().invoke(cli, ["device", "list"]).stdout.splitlines()
    reached = {words[1]: " ".join(words) for line in lines if len(words := line.split()) > 1}
    assert "this host" in reached["here"]
    assert "not at hand: a machine with the CPU 'Another CPU'" in reached["elsewhere"]


def test_device_detect_records_the_host_and_its_variants(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    detected = json.loads(CliRunner().invoke(cli, ["device", "detect", "--name", "mine", "--json"]).stdout)
    listed = json.loads(CliRunner().invoke(cli, ["device", "list", "--json"]).stdout)
    assert detected["device"]["name"] == "mine"
    names = {detected["device"]["name"], *(variant["name"] for variant in detected["variants"])}
    assert names == {device["name"] for device in listed["devices"]}


def test_lists_say_what_to_do_when_a_project_is_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert "tcl device detect" in runner.invoke(cli, ["device", "list"]).stdout
    assert "tcl distill" in runner.invoke(cli, ["models"]).stdout
    assert "none yet" in runner.invoke(cli, ["data", "status"]).stdout


def raising(error):
    def raises(*_):
        raise error

    return raises


def test_command_ends_with_130_when_it_is_interrupted_before_it_began(monkeypatch, capsys):
    monkeypatch.setattr(LazyGroup, "get_command", raising(KeyboardInterrupt()))
    with pytest.raises(SystemExit) as end:
        main(["models", "--json"])
    out, err = capsys.readouterr()
    assert end.value.code == 130
    assert err.strip() == "tcl: interrupted"
    assert json.loads(out) == {"error": "interrupted", "exit_code": 130}


def test_end_of_a_file_counts_as_no_interruption(monkeypatch):
    monkeypatch.setattr(LazyGroup, "get_command", raising(EOFError("cut off")))
    with pytest.raises(EOFError, match="cut off"):
        main(["models"])
