"""Ansor's workload keys."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.features.workload_keys import normalise_key, summary_of_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            ["conv2d_layer", 128, 64, 56, 56, 64, 3, 3, 1, "SAME"],
            ["conv2d_layer", 128, 64, 56, 56, 64, 3, 3, 1, 1],
        ),
        (
            ["conv2d_layer", 128, 64, 56, 56, 64, 1, 1, 1, "SAME"],
            ["conv2d_layer", 128, 64, 56, 56, 64, 1, 1, 1, 0],
        ),
        (["conv2d_layer", 1, 3, 9, 9, 8, 3, 3, 2, "VALID"], ["conv2d_layer", 1, 3, 9, 9, 8, 3, 3, 2, 0]),
        (["pool_layer", "avg", 1, 8, 9, 9, 3, 3, 2, "SAME"], ["pool_layer", "avg", 1, 8, 9, 9, 3, 3, 2, 1]),
    ],
)
def test_key_is_the_same_when_padding_is_written_differently(one: list, other: list) -> None:
    assert normalise_key(json.dumps(one)) == normalise_key(json.dumps(other, separators=(",", ":")))


def test_key_differs_when_the_padding_does() -> None:
    key = '["conv2d_layer", 128, 64, 56, 56, 64, 3, 3, 1, %s]'
    assert normalise_key(key % '"SAME"') != normalise_key(key % "0")


def test_convolution_is_summarised_by_its_loops() -> None:
    summary = summary_of_key('["conv2d_layer", 2, 16, 28, 28, 32, 3, 3, 2, "SAME"]')
    assert summary.op == "conv2d"
    assert summary.spatial == (2, 32, 14, 14)
    assert summary.reduce == (16, 3, 3)
    assert summary.flops == 2 * 2 * 32 * 14 * 14 * 16 * 9
    assert summary.write_bytes == 4 * 2 * 32 * 14 * 14


@pytest.mark.parametrize(
    ("key", "op", "spatial", "reduce"),
    [
        ('["matmul_layer", 128, 4032, 1000]', "matmul", (128, 1000), (4032,)),
        (
            '["depthwise_conv2d_layer", 1, 8, 10, 10, 3, 3, 1, "SAME"]',
            "depthwise_conv2d",
            (1, 8, 10, 10),
            (3, 3),
        ),
        ('["pool_layer", "max", 1, 8, 10, 10, 2, 2, 2, "VALID"]', "pool", (1, 8, 5, 5), (2, 2)),
        ('["reduction_layer", [128, 512, 1024], 2, false]', "reduce", (128, 512), (1024,)),
        ('["relu_layer", 128, 7, 7]', "elementwise", (128, 7, 7), ()),
    ],
)
def test_layer_is_summarised(key: str, op: str, spatial: tuple, reduce: tuple) -> None:
    summary = summary_of_key(key)
    assert (summary.op, summary.spatial, summary.reduce) == (op, spatial, reduce)


arguments = st.lists(st.one_of(st.integers(-5, 500), st.text(max_size=4), st.none(), st.lists(st.integers())))
names = st.sampled_from(["conv2d_layer", "pool_layer", "reduction_layer", "relu_layer", "0f3a", 7])


@given(st.one_of(st.text(), st.builds(lambda name, rest: json.dumps([name, *rest]), names, arguments)))
def test_any_text_is_a_key(key: str) -> None:
    assert normalise_key(normalise_key(key)) == normalise_key(key)
    summary_of_key(key).vector()


@pytest.mark.parametrize("odd", ["ab", [7], [[7]], {"a": 1}])
@pytest.mark.parametrize(
    "name", ["relu_layer", "matmul_layer", "reduction_layer", "pool_layer", "conv2d_layer"]
)
def test_texts_and_lists_among_the_numbers_cost_no_memory(name: str, odd: object) -> None:
    for length in (3, 4, 9, 10):
        key = json.dumps([name, odd, *[2**40, odd, 2**40] * 3][:length])
        assert summary_of_key(key).op == "other"


def test_more_operations_than_a_float_holds_are_of_no_known_kind() -> None:
    assert summary_of_key(json.dumps(["relu_layer", *[2**60] * 20])).op == "other"
