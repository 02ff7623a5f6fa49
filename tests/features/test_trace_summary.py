"""Summaries of programs that only their traces speak of."""

from tcl.features.trace_summary import summary_of_trace


def test_tiled_convolution_is_recognised(traces: dict[str, list]) -> None:
    arguments = [
        ["TENSOR", "float32", [1, 4, 56, 56, 16]],
        ["TENSOR", "float32", [4, 4, 3, 3, 16, 16]],
        ["TENSOR", "float32", [1, 4, 56, 56, 16]],
    ]
    name, summary = summary_of_trace(*traces["cpu_conv2d"], arguments)
    assert name == "data_pad_conv2d_NCHWc_T_add_compute"
    assert summary.op == "conv2d" and summary.dtype == "float32" and summary.blocks == 4
    assert summary.spatial == (1, 4, 56, 56, 16)
    assert summary.reduce == (64, 3, 3)
    assert summary.flops == 2 * 64 * 56 * 56 * 64 * 9
    assert summary.read_bytes == 4 * (64 * 56 * 56 + 64 * 64 * 9)
    assert summary.write_bytes == 4 * 64 * 56 * 56


def test_ops_are_told_from_block_names(traces: dict[str, list]) -> None:
    ops = {name: summary_of_trace(*trace)[1].op for name, trace in traces.items()}
    assert ops == {
        "cpu_conv2d": "conv2d",
        "cpu_matmul": "matmul",
        "cpu_depthwise": "depthwise_conv2d",
        "cpu_softmax": "softmax",
        "cpu_reduce": "reduce",
        "cpu_elementwise": "elementwise",
        "gpu_conv2d": "conv2d",
        "gpu_matmul": "matmul",
        "gpu_elementwise": "elementwise",
    }
