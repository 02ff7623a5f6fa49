"""Boards behind a real tracker: measured side by side, waited for when one is away."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from boards import Boards, boards, free_port

from tcl.devices.device import Device, Rpc
from tcl.devices.patience import told_to
from tcl.errors import DeviceLost
from tcl.measuring.engine import MeasuringEngine
from tcl.measuring.types import MeasureOptions, MeasureRequest, MeasureResult

Sample = Callable[[int], list[MeasureRequest]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def two() -> Iterator[Boards]:
    """Two boards, `left` and `right`, in processes of their own on different cores."""
    with boards("left", "right") as running:
        yield running


def behind(running: Boards, device: Device, key: str) -> Device:
    return replace(device, name=key, rpc=Rpc("127.0.0.1", running.port, key))


def test_boards_measure_side_by_side_when_one_is_killed_in_the_middle_and_started_again(
    two: Boards, device: Device, matmul: Sample, options: MeasureOptions
) -> None:
    requests, told = matmul(4), []

    def restart(reason: str | None) -> None:
        told.append(reason)
        if len(told) == 1:
            two.start("right", core=1)

    def measure(key: str, dies: bool) -> list[MeasureResult]:
        results = []
        with MeasuringEngine(behind(two, device, key), options) as engine, told_to(restart):
            for result in engine.measure(requests):
                results.append(result)
                if dies and len(results) == 1:
                    two.kill("right")
        return results

    with ThreadPoolExecutor(2) as threads:
        measured = list(threads.map(measure, ("left", "right"), (False, True)))
    for results in measured:
        assert sorted(result.request.trace for result in results) == sorted(r.trace for r in requests)
        assert all(result.error is None and result.run_seconds for result in results)
        assert all(
            result.reference_seconds is not None and result.reference_seconds > 0 for result in results
        )
    assert told[0] is not None and told[0].startswith("waiting for device right: the tracker at 127.0.0.1:")
    assert told[-1] is None


def test_candidates_that_hang_or_kill_the_board_cost_themselves_only(
    two: Boards,
    device: Device,
    matmul: Sample,
    plants: dict[str, MeasureRequest],
    options: MeasureOptions,
) -> None:
    restarts = 0

    def restart(reason: str | None) -> None:
        nonlocal restarts
        if reason is not None:  # TVM's server lives on after a crash, and serves no more
            two.kill("left")
            two.start("left")
            restarts += 1

    with MeasuringEngine(behind(two, device, "left"), options) as engine, told_to(restart):
        (hung,) = engine.measure([plants["hang"]])
        (crashed,) = engine.measure([plants["crash"]])
        (good,) = engine.measure(matmul(1))
    assert hung.error == "timeout: the run took too long"
    assert crashed.error is not None and crashed.error.startswith("crash: ")
    assert good.error is None
    assert restarts >= 2  # the crash is tried once more, and the next candidate needs a board again


def test_a_board_that_stays_away_is_named_when_the_wait_is_over(
    device: Device, matmul: Sample, options: MeasureOptions
) -> None:
    gone = replace(device, name="pi", rpc=Rpc("127.0.0.1", free_port(), "pi"))
    impatient = replace(options, device_wait=0.0)
    with MeasuringEngine(gone, impatient) as engine, pytest.raises(DeviceLost, match="waiting for device pi"):
        next(engine.measure(matmul(1)))
