import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.devices.device import Device, Rpc, parse_device
from tcl.errors import BadInput

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
rpcs = st.builds(Rpc, st.text(min_size=1), st.integers(1, 65535), st.text(min_size=1))
devices = st.builds(
    Device,
    name=st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True),
    target=st.dictionaries(st.text(), json_values, max_size=3).map(
        lambda more: {**more, "kind": "llvm", "num-cores": 4}
    ),
    rpc=st.none() | rpcs,
    facts=st.dictionaries(st.text(), json_values, max_size=3),
)


@given(devices)
def test_from_json_returns_equal_device_when_written_by_to_json(device: Device) -> None:
    again = Device.from_json(json.loads(json.dumps(device.to_json())))
    assert again == device
    assert again.identity() == device.identity()


@given(json_values | st.fixed_dictionaries({"name": json_values, "target": json_values, "rpc": json_values}))
def test_from_json_raises_bad_input_when_value_is_no_device(value: Any) -> None:
    with pytest.raises(BadInput):
        Device.from_json(value)


def test_identity_ignores_name_and_order_and_sees_every_other_change() -> None:
    target = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}
    device = Device("a", target, facts={"cores": 2})
    same = Device("b", dict(reversed(target.items())), facts={"cores": 2})
    others = [
        Device("a", {**target, "num-cores": 1}, facts={"cores": 2}),
        Device("a", target, facts={"cores": 3}),
        Device("a", target, Rpc("board", 9190, "pi"), facts={"cores": 2}),
    ]
    assert same.identity() == device.identity()
    assert len({device.identity(), *(other.identity() for other in others)}) == 4


@pytest.mark.parametrize(
    "name", ["", "../x", "a/b", "A", ".hidden", "-x", "a b", "a\n", "x" * 65, "ä", None, 3]
)
def test_device_refuses_name_when_it_could_leave_its_folder(name: Any) -> None:
    with pytest.raises(BadInput, match="no device name"):
        Device(name, {"kind": "llvm", "num-cores": 1})


@pytest.mark.parametrize("name", ["workloads", "workloads.parquet"])
def test_device_refuses_a_name_that_the_store_uses_itself(name: str) -> None:
    with pytest.raises(BadInput, match="no device can be named"):
        Device(name, {"kind": "llvm", "num-cores": 1})


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("cpu_model", 7),
        ("isa", []),
        ("cores", True),
        ("l2_bytes", None),
        ("vector_bits", "abc"),
        ("vector_bits", -8),
        ("vector_bits", 1 << 40),
        ("sm_count", float("nan")),
    ],
)
def test_device_names_the_fact_when_it_is_wrong(fact: str, value: Any) -> None:
    with pytest.raises(BadInput, match=f"device 'a': the fact '{fact}' must be a"):
        Device.from_json(
            {"name": "a", "target": {"kind": "llvm", "num-cores": 1}, "facts": {fact: value}},
        )


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("llvm", "JSON object"),
        ({"num-cores": 2}, '"kind"'),
        ({"kind": "llvm"}, '"num-cores"'),
        ({"kind": "llvm", "num-cores": 0}, '"num-cores"'),
        ({"kind": "llvm", "num-cores": "2"}, '"num-cores"'),
        ({"kind": "llvm", "num-cores": True}, '"num-cores"'),
        ({"kind": "llvm", "num-cores": 2, "x": {1, 2}}, "plain JSON"),
        ({"kind": "llvm", "num-cores": 2, "x": float("nan")}, "plain JSON"),
        ({"kind": "llvm", "num-cores": 2, "x": "\ud800"}, "plain JSON"),
        ({"kind": "llvm", "num-cores": 2, "x": nested(800)}, "plain JSON"),
    ],
)
def test_device_names_the_fault_when_target_is_wrong(target: Any, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        Device("a", target)


def test_vector_bits_and_num_cores_have_defaults_when_unknown() -> None:
    device = Device("gpu", {"kind": "cuda"})
    assert (device.num_cores, device.vector_bits) == (1, 128)


def test_parse_device_reads_target_and_tracker() -> None:
    device = parse_device("pi", '{"kind": "llvm", "num-cores": 4}', "[::1]:9190", "pi4")
    assert device == Device("pi", {"kind": "llvm", "num-cores": 4}, Rpc("::1", 9190, "pi4"))


@pytest.mark.parametrize(
    ("target", "rpc", "key"),
    [
        ("llvm -mcpu=x", None, None),
        ("[]", None, None),
        ('{"kind": "llvm", "num-cores": 4}', "host", "k"),
        ('{"kind": "llvm", "num-cores": 4}', "host:99999", "k"),
        ('{"kind": "llvm", "num-cores": 4}', "host:²", "k"),
        ('{"kind": "llvm", "num-cores": 4}', "host:9190", None),
        ('{"kind": "llvm", "num-cores": 4}', None, "k"),
    ],
)
def test_parse_device_raises_bad_input_when_a_text_is_wrong(
    target: str, rpc: str | None, key: str | None
) -> None:
    with pytest.raises(BadInput):
        parse_device("a", target, rpc, key)
