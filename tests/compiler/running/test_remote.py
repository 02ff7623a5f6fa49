"""A package on a board behind a real tracker: verified and timed there, and waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from boards import HOST, Boards, boards

from tcl.compiler.running.latency import benchmark
from tcl.compiler.running.remote import run_on_board
from tcl.compiler.running.verify import verify
from tcl.devices.device import Rpc
from tcl.devices.patience import patiently, told_to
from tcl.errors import DeviceLost, WrongResults

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def tracker() -> Iterator[Boards]:
    """A tracker without a board."""
    with boards() as running:
        yield running


def test_package_is_verified_and_timed_on_the_board_when_it_comes_back(linear_package, tracker):
    folder, model = linear_package
    rpc = Rpc(HOST, tracker.port, "pi")
    with pytest.raises(DeviceLost, match="no free server with the key 'pi'"):
        verify(folder, model, rpc=rpc)
    told = []

    def plug_in(reason: str | None) -> None:
        told.append(reason)
        if len(told) == 1:
            tracker.start("pi")

    with told_to(plug_in):
        result = patiently("pi", 300, lambda: verify(folder, model, rpc=rpc))
    assert told[0].startswith("waiting for device pi: ") and told[-1] is None
    assert 0 <= result.max_rel < 1e-6
    assert result.inputs == ("random", "random again", "zeros", "large")
    (timed,) = benchmark({"tuned": folder}, rounds=2, rpc=rpc).values()
    assert len(timed.rounds) == 2 and all(seconds > 0 for seconds in timed.rounds)


@pytest.mark.parametrize(
    ("message", "expected", "told"),
    [
        ("Check failed: code=kShutdown", WrongResults, "ended its process on the board"),
        ("anything else", RuntimeError, "anything else"),
    ],
)
def test_program_is_to_blame_when_its_process_on_the_board_ends_and_the_board_answers(
    tracker, message, expected, told
):
    def work() -> None:
        raise RuntimeError(message)

    tracker.start(expected.__name__)
    with pytest.raises(expected, match=told):
        run_on_board({"host": HOST, "port": tracker.port, "key": expected.__name__}, work)
