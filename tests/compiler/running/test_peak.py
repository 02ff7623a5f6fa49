"""The machine's peak."""

import subprocess

import pytest

from tcl.compiler.running.peak import measure_peak_alone


def test_peak_is_measured_in_a_process_of_its_own() -> None:
    assert measure_peak_alone({"kind": "llvm", "num-cores": 1}, 1, 128) > 1e8


def test_peak_is_not_made_up_when_its_process_fails() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        measure_peak_alone({"kind": "no such target"}, 1, 128)
