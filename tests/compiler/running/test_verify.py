"""Verification: agreement is measured, disagreement and crashes are failures of the work."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import numpy_helper
from onnx_models import compile_package, linear_model, relu_model, save

from tcl.compiler.frontend.inputs import broken_inputs, extreme_inputs, random_inputs, zero_inputs
from tcl.compiler.frontend.model import read_onnx
from tcl.compiler.running.verify import difference, verify
from tcl.compiler.tensors import TensorSpec
from tcl.errors import BadInput, WorkFailed, WrongResults
from tcl.files import sha256_file


def test_verify_reports_the_errors_when_package_agrees(linear_package):
    folder, model = linear_package
    result = verify(folder, model)
    assert 0 <= result.max_rel < 1e-6 and result.tolerance == {"float32": 1e-4}
    assert result.inputs == ("random", "random again", "zeros", "large")
    assert result.to_json()["max_abs"] == result.max_abs


def test_verify_names_the_output_when_package_computes_something_else(linear_package, tmp_path):
    other = read_onnx(save(linear_model(seed=1), tmp_path))
    with pytest.raises(WorkFailed, match="output 'y'"):
        verify(linear_package[0], other)


def test_verify_demands_the_given_tolerance(linear_package, tmp_path):
    proto = linear_model()
    weights = numpy_helper.to_array(proto.graph.initializer[0]) * np.float32(1 + 1e-5)
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    slightly_off = read_onnx(save(proto, tmp_path))
    verify(linear_package[0], slightly_off)
    with pytest.raises(WorkFailed, match="allowed is 1e-06"):
        verify(linear_package[0], slightly_off, tolerances={"float32": 1e-6})


def test_verify_blames_no_program_when_the_package_cannot_be_loaded(linear_package, tmp_path):
    folder = tmp_path / "package"
    shutil.copytree(linear_package[0], folder)
    (folder / "model.so").unlink()
    with pytest.raises(BadInput, match=r"lacks its file 'model\.so'"):
        verify(folder, linear_package[1])


@pytest.mark.parametrize(
    ("code", "expected", "message"),
    [
        ("raise(11)", WrongResults, r"crashed when it was verified \(SIGSEGV\)"),
        ("raise(4)", WorkFailed, r"could not be verified \(SIGILL: .*for another machine"),
        ("raise(9)", WorkFailed, r"could not be verified \(SIGKILL: .*too little memory"),
        ("_exit(3)", WorkFailed, r"could not be verified \(exit code 3\)"),
    ],
)
def test_verify_tells_a_crash_of_the_program_from_what_the_machine_does(
    linear_package, tmp_path, code, expected, message
):
    folder = tmp_path / "package"
    shutil.copytree(linear_package[0], folder)
    source = (
        f"#include <signal.h>\n#include <unistd.h>\n__attribute__((constructor)) void run(void) {{ {code}; }}"
    )
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "model.so")]
    subprocess.run(command, input=source, text=True, check=True)
    manifest = json.loads((folder / "tcl.json").read_text())
    (folder / "tcl.json").write_text(
        json.dumps(manifest | {"files": {"model.so": sha256_file(folder / "model.so")}})
    )
    with pytest.raises(WorkFailed, match=message) as failed:
        verify(folder, linear_package[1])
    assert type(failed.value) is expected


def test_verify_agrees_when_input_and_output_are_scalars(tmp_path):
    read = compile_package(save(relu_model(()), tmp_path), tmp_path / "package")
    assert read.inputs[0].shape == ()
    assert verify(tmp_path / "package", read).nan_agrees is not None


arrays = hnp.arrays(np.float32, st.just((4,)), elements=st.floats(-(2.0**100), 2.0**100, width=32))


@given(arrays, arrays)
def test_difference_is_the_largest_one_relative_to_the_largest_magnitude(expected, actual):
    absolute, relative = difference(expected, actual)
    exact = np.abs(expected.astype(np.float64) - actual).max()
    assert absolute == pytest.approx(exact)
    if exact:
        assert relative == pytest.approx(exact / max(np.abs(expected.astype(np.float64)).max(), 1e-38))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_difference_is_infinite_when_nan_or_infinity_is_elsewhere(special):
    with_special = np.array([1, special], np.float32)
    assert difference(with_special, with_special) == (0.0, 0.0)
    assert difference(with_special, np.ones(2, np.float32))[0] == np.inf
    assert difference(np.ones(2, np.float32), with_special)[0] == np.inf


def test_difference_is_infinite_when_shape_or_dtype_differs():
    ones = np.ones(2, np.float32)
    assert difference(ones, ones[None])[0] == np.inf
    assert difference(ones, ones.astype(np.float64))[0] == np.inf


SPECS = (
    TensorSpec("image", (2, 3), "float32"),
    TensorSpec("half", (5,), "float16"),
    TensorSpec("ids", (64,), "int64", high=7),
    TensorSpec("attention_mask", (64,), "int64"),
    TensorSpec("pixels", (64,), "uint8"),
    TensorSpec("flag", (), "bool"),
    TensorSpec("scale", (), "float32"),
    TensorSpec("step", (), "int64"),
)


@pytest.mark.parametrize("make", [random_inputs, zero_inputs, broken_inputs, extreme_inputs])
def test_inputs_have_the_shapes_and_dtypes_of_the_model(make):
    made = make(SPECS) if make is zero_inputs else make(SPECS, 0)
    for spec, array in zip(SPECS, made.values(), strict=True):
        assert isinstance(array, np.ndarray)
        assert array.shape == spec.shape and array.dtype == np.dtype(spec.dtype)


def test_inputs_are_repeatable_and_within_their_ranges():
    feed, again = random_inputs(SPECS, 3), random_inputs(SPECS, 3)
    assert all(np.array_equal(feed[name], again[name]) for name in feed)
    assert feed["ids"].min() >= 0 and feed["ids"].max() < 7
    assert set(np.unique(feed["attention_mask"])) == {0, 1}
    assert feed["pixels"].max() > 127


def test_broken_inputs_hold_nan_and_infinity():
    image = broken_inputs((replace(SPECS[0], shape=(50, 50)),), 0)["image"]
    assert np.isnan(image).any() and np.isinf(image).any()
