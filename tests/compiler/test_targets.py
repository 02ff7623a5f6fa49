"""Targets from JSON."""

from typing import Any

import pytest

from tcl.compiler.targets import target_of
from tcl.devices.host import builtin_variants, detect_host
from tcl.errors import BadInput


def test_target_of_makes_the_targets_of_this_host_and_of_a_board() -> None:
    board = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 4}
    for target in (board, *(device.target for device in builtin_variants(detect_host()))):
        assert target_of(target).attrs["mcpu"] == target["mcpu"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kind": "foo"}, 'kind "foo" is not defined$'),
        ({"mcpu": 5}, "'mcpu': expected type 'str'"),
        ({"bogus": "y"}, "'bogus'"),
        ({"num-cores": 10**30}, "'num-cores': expected type 'int'"),
        ({"mcpu": "nonexist"}, "no CPU 'nonexist'"),
        (
            {"mcpu": "znver4", "mtriple": "aarch64-linux-gnu"},
            "no CPU 'znver4'.*of machines aarch64-linux-gnu",
        ),
    ],
)
def test_target_of_refuses_in_one_sentence_when_tvm_knows_no_such_target(
    change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        target_of({"kind": "llvm", "num-cores": 2, **change})
