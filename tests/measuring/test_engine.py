import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from tcl.devices.device import Device
from tcl.errors import BadInput, WorkFailed
from tcl.measuring import engine as engine_module
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureOptions, MeasureRequest

Sample = Callable[[int], list[MeasureRequest]]


def servers_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children() if "tcl.measuring.server" in " ".join(child.cmdline())]


def wait_until_gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    return psutil.wait_procs(processes, timeout=20)[1]


def test_measure_returns_times_and_a_full_trace_for_each_candidate(
    engine: MeasuringEngine, matmul: Sample, options: MeasureOptions
) -> None:
    requests = matmul(6)
    results = list(engine.measure(requests))
    assert {result.request.trace for result in results} == {request.trace for request in requests}
    for result in results:
        assert result.error is None
        assert 1 <= len(result.run_seconds) <= options.repeats
        assert all(0 < seconds < 1 for seconds in result.run_seconds)
        assert result.reference_seconds is not None and 0 < result.reference_seconds < 1
        assert any(instruction[0] == "EnterPostproc" for instruction in json.loads(result.trace)[0])


def test_timing_gives_up_in_one_sentence_when_somebody_keeps_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(engine_module, "_LOCK_SECONDS", 0.05)
    with engine_module._only_timing_here():
        refused = pytest.raises(WorkFailed, match=f"it holds the lock on {tmp_path}")
        with refused, engine_module._only_timing_here():
            pass
    with engine_module._only_timing_here():
        pass


def test_measure_replays_a_full_trace_unchanged(engine: MeasuringEngine, matmul: Sample) -> None:
    (first,) = engine.measure(matmul(1))
    (second,) = engine.measure([replace(first.request, trace=first.trace)])
    assert second.error is None
    assert json.loads(second.trace) == json.loads(first.trace)


@pytest.mark.parametrize(
    ("plant", "cause"),
    [
        ("crash", "crash: signal 11"),
        ("hang", "timeout: the run took too long"),
        ("argument", "memory: "),
        ("workspace", "memory: "),
    ],
)
def test_a_harmful_candidate_costs_itself_only(
    engine: MeasuringEngine, matmul: Sample, plants: dict[str, MeasureRequest], plant: str, cause: str
) -> None:
    good = matmul(2)
    results = list(engine.measure([good[0], plants[plant], good[1]]))
    errors = {result.request.workload: result.error for result in results if result.error is not None}
    assert list(errors) == [plant]
    assert errors[plant].startswith(cause)
    assert sum(bool(result.run_seconds) for result in results) == 2


@pytest.mark.parametrize(
    ("trace", "detail"),
    [
        ("not JSON", "JSONDecodeError"),
        ('[[["NoSuchInstruction", [], [], []]], []]', "NoSuchInstruction"),
    ],
)
def test_a_wrong_trace_is_a_build_error(
    engine: MeasuringEngine, matmul: Sample, trace: str, detail: str
) -> None:
    (result,) = engine.measure([replace(matmul(1)[0], trace=trace)])
    assert result.error is not None and result.error.startswith("build: ") and detail in result.error
    assert result.run_seconds == () and result.reference_seconds is None


def test_killed_workers_are_replaced(engine: MeasuringEngine, matmul: Sample) -> None:
    list(engine.measure(matmul(1)))
    (server,) = servers_of(psutil.Process())
    for worker in server.children():
        worker.send_signal(signal.SIGKILL)
    results = list(engine.measure(matmul(8)))
    errors = [result.error for result in results if result.error is not None]
    assert len(results) == 8 and 1 <= len(errors) <= 3
    assert all("signal 9" in error for error in errors)
    assert all(result.error is None for result in engine.measure(matmul(4)))


def test_a_build_that_takes_too_long_is_given_up(
    matmul: Sample, device: Device, options: MeasureOptions
) -> None:
    with MeasuringEngine(device, replace(options, builders=1)) as engine:
        list(engine.measure(matmul(1)))
        assert engine._builders is not None
        engine._builders._timeout = 0.001
        errors = [result.error for result in engine.measure(matmul(2))]
    assert errors == ["timeout: the build took too long"] * 2


def test_the_engine_goes_on_when_an_iterator_is_dropped(engine: MeasuringEngine, matmul: Sample) -> None:
    results = engine.measure(matmul(6))
    next(results)
    results.close()
    assert [result.error for result in engine.measure(matmul(2))] == [None, None]


def test_a_slow_candidate_is_timed_once_when_a_far_better_one_is_known(
    matmul: Sample, device: Device, options: MeasureOptions
) -> None:
    unhurried = replace(options, hopeless_factor=0.0, budget_seconds=60.0)  # whatever else the machine does
    with MeasuringEngine(device, unhurried) as engine:
        first, second = engine.measure(matmul(2))
    assert len(first.run_seconds) == options.repeats
    assert len(second.run_seconds) == 1


def test_candidates_of_a_storm_are_timed_again_a_bounded_number_of_times(
    matmul: Sample, device: Device, options: MeasureOptions
) -> None:
    with MeasuringEngine(device, replace(options, storm_spread=0.0, storm_retries=1)) as engine:
        results = list(engine.measure(matmul(3)))
    assert len(results) == 3 and all(result.error is None for result in results)


def test_close_ends_all_processes_and_removes_all_files(
    matmul: Sample, device: Device, options: MeasureOptions
) -> None:
    with MeasuringEngine(device, options) as engine:
        list(engine.measure(matmul(2)))
        folder = engine._pool.wait_until_ready()
        server = servers_of(psutil.Process())[-1]
        workers = server.children(recursive=True)
        assert len(workers) == 3 and folder.is_dir()
        assert [path.name for path in folder.glob("candidate-*")] == []
    assert not folder.exists()
    assert not wait_until_gone([server, *workers])


def test_nothing_is_left_when_the_engine_s_process_is_killed(
    matmul: Sample, tmp_path: Path, device: Device
) -> None:
    requests = tmp_path / "requests.json"
    requests.write_text(json.dumps([asdict(request) for request in matmul(200)]))
    code = f"""
import json
from tcl.devices.device import Device
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureRequest
requests = [MeasureRequest(**value) for value in json.load(open({str(requests)!r}))]
with MeasuringEngine(Device.from_json({device.to_json()!r})) as engine:
    for result in engine.measure(requests):
        print(result.error, flush=True)
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None and process.stdout.readline() == b"None\n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3
    process.kill()
    process.wait()
    assert not wait_until_gone(family)
    assert list(tmp_path.glob("tcl-measuring-*")) == []


def test_a_device_with_more_cores_than_this_machine_is_refused() -> None:
    big = Device("big", {"kind": "llvm", "num-cores": 100000})
    with pytest.raises(BadInput, match="100000 cores"):
        MeasuringEngine(big)


def test_a_target_that_nothing_can_be_built_for_fails_the_work(matmul: Sample) -> None:
    device = Device("odd", {"kind": "llvm", "mtriple": "nonsense-none", "num-cores": 1})
    with MeasuringEngine(device) as engine, pytest.raises(WorkFailed, match="odd"):
        next(engine.measure(matmul(1)))
