import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcl.devices.device import Device, Rpc
from tcl.devices.host import (
    builtin_variants,
    check_reachable,
    detect_host,
    is_reachable,
    on_this_host,
    read_caches,
    recognise_cpu,
    usable_cores,
)
from tcl.errors import BadInput

V2 = "sse4_1 sse4_2 ssse3 popcnt cx16"
V3 = f"{V2} avx2 bmi1 bmi2 f16c fma movbe"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
ICELAKE = f"{V4} avx512_vnni avx512vbmi avx512_vbmi2 avx512ifma avx512_bitalg avx512_vpopcntdq"
AMD, INTEL = "AuthenticAMD", "GenuineIntel"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "expected"),
    [
        (AMD, 25, 17, f"{ICELAKE} avx512_bf16", ("avx512", "znver4")),
        (AMD, 25, 17, f"{V3} vaes vpclmulqdq", ("avx2", "znver3")),  # a hypervisor hides AVX-512
        (AMD, 25, 17, V2, ("sse42", "x86-64-v2")),
        (AMD, 25, 33, f"{V3} vaes vpclmulqdq", ("avx2", "znver3")),
        (AMD, 26, 2, f"{ICELAKE} avx512_bf16 avx_vnni", ("avx512", "znver5")),
        (AMD, 23, 49, f"{V3} clwb sha_ni", ("avx2", "znver2")),
        (AMD, 23, 1, f"{V3} sha_ni", ("avx2", "znver1")),
        (INTEL, 6, 85, V4, ("avx512", "skylake-avx512")),
        (INTEL, 6, 85, f"{V4} avx512_vnni", ("avx512", "cascadelake")),
        (INTEL, 6, 106, ICELAKE, ("avx512", "icelake-server")),
        (INTEL, 6, 143, f"{ICELAKE} avx512_fp16 avx512_bf16", ("avx512", "sapphirerapids")),
        (INTEL, 6, 143, V4, ("avx512", "x86-64-v4")),
        (INTEL, 6, 63, V3, ("avx2", "haswell")),
        ("Unknown", 99, 1, V3, ("avx2", "x86-64-v3")),
        ("Unknown", 99, 1, V4.replace("fma", ""), ("sse42", "x86-64-v2")),  # no level without those below it
        (INTEL, 6, 15, "sse2", ("generic", "x86-64")),
    ],
)
def test_recognise_cpu_names_x86_cpu_only_when_it_has_the_features(
    vendor: str, family: int, model: int, flags: str, expected: tuple[str, str]
) -> None:
    block = (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: The CPU\nflags\t\t: {flags}\n"
    )
    assert recognise_cpu(f"{block}\n{block}", "x86_64") == ("The CPU", *expected)


def test_recognise_cpu_names_arm_cpu_by_its_most_common_part() -> None:
    little, big = (
        f"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: {part}\n" for part in ("0xd03", "0xd08")
    )
    assert recognise_cpu(f"{big}\n{big}\n{little}", "aarch64") == ("cortex-a72", "neon", "cortex-a72")
    unknown = "processor\t: 0\nCPU implementer\t: 0x51\nCPU part\t: 0x001\n"
    assert recognise_cpu(unknown, "aarch64")[1] == "neon"


@pytest.mark.parametrize(("machine", "isa"), [("x86_64", "generic"), ("aarch64", "neon")])
def test_recognise_cpu_answers_when_its_numbers_cannot_be_read(machine: str, isa: str) -> None:
    for number in ("", "six", "\u0664"):
        fields = {"vendor_id": "AuthenticAMD", "CPU implementer": "0x41", "CPU part": number}
        fields |= {"cpu family": number, "model": number, "model name": "The CPU"}
        cpuinfo = "".join(f"{key}\t: {value}\n" for key, value in fields.items())
        assert recognise_cpu(cpuinfo, machine)[1] == isa


@given(st.text(), st.sampled_from(["x86_64", "AMD64", "aarch64", "arm64", "riscv64", ""]))
def test_recognise_cpu_always_answers(cpuinfo: str, machine: str) -> None:
    _, isa, mcpu = recognise_cpu(cpuinfo, machine)
    assert isa in ("avx512", "avx2", "sse42", "neon", "generic")
    assert mcpu


def test_detect_host_describes_this_machine() -> None:
    host = detect_host()
    assert host.num_cores == host.facts["cores"] <= (os.cpu_count() or 1)
    assert host.name == f"{host.target['mcpu']}-{host.num_cores}c"
    assert host == detect_host()
    assert detect_host("mine").identity() == host.identity()


def test_builtin_variants_restrict_isa_and_cores() -> None:
    target = {"kind": "llvm", "mcpu": "znver4", "num-cores": 4}
    host = Device("znver4-4c", target, facts={"isa": "avx512", "cores": 4, "vector_bits": 512, "l2_bytes": 7})
    variants = builtin_variants(host)
    assert variants[0] is host
    assert [(v.name, v.target["mcpu"], v.num_cores, v.vector_bits, v.facts["isa"]) for v in variants[1:]] == [
        ("znver4-4c-avx2", "x86-64-v3", 4, 256, "avx2"),
        ("znver4-1c-sse42", "x86-64-v2", 1, 128, "sse42"),
    ]
    assert all(v.facts["l2_bytes"] == 7 for v in variants)


@pytest.mark.parametrize(("isa", "count"), [("avx2", 3), ("sse42", 2), ("neon", 1)])
def test_builtin_variants_leave_out_what_the_host_cannot_run(isa: str, count: int) -> None:
    host = Device("h", {"kind": "llvm", "mcpu": "m", "num-cores": 2}, facts={"isa": isa})
    assert len(builtin_variants(host)) == count


def test_read_caches_returns_data_caches_in_bytes(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [(1, "Data", "32K"), (1, "Instruction", "32K"), (3, "Unified", "8M")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert read_caches(tmp_path) == {"l1d_bytes": 32768, "l3_bytes": 8 << 20}
    assert read_caches(tmp_path / "absent") == {}


@pytest.mark.parametrize("version", [1, 2])
def test_usable_cores_obeys_the_cgroup_quota(tmp_path: Path, version: int) -> None:
    own = tmp_path / "cgroup"
    if version == 2:
        group = tmp_path / "fs" / "outer" / "inner"
        group.mkdir(parents=True)
        (group / "cpu.max").write_text("max 100000\n")
        (group.parent / "cpu.max").write_text("150000 100000\n")
        own.write_text("0::/outer/inner\n")
    else:
        group = tmp_path / "fs" / "cpu" / "inner"
        group.mkdir(parents=True)
        (group / "cpu.cfs_quota_us").write_text("100000\n")
        (group / "cpu.cfs_period_us").write_text("100000\n")
        own.write_text("5:memory:/\n4:cpu,cpuacct:/inner\n")
    assert usable_cores(tmp_path / "fs", own) == 1
    assert usable_cores(tmp_path / "empty", tmp_path / "absent") >= 1


def test_check_reachable_accepts_this_host_and_its_variants() -> None:
    for device in builtin_variants(detect_host()):
        check_reachable(device)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"facts": {"cpu_model": "Another CPU"}}, "a machine with the CPU 'Another CPU' and this one has"),
        (  # a hypervisor gives both the same model name
            {"facts": {**detect_host().facts, "cpu": "znver9"}},
            r"a machine with the CPU '.* \(znver9\)' and this one has",
        ),
        ({"target": {"kind": "llvm", "num-cores": 100_000}}, "a machine with 100000 cores and this one has"),
        (
            {"target": {"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu", "num-cores": 1}},
            "a machine of kind riscv64 and this one is",
        ),
    ],
)
def test_check_reachable_refuses_a_device_when_it_is_another_host_of_the_fleet(change, what: str) -> None:
    device = replace(detect_host("other"), **change)
    with pytest.raises(BadInput, match=f"other is {what}.*nothing can be measured on it from here; record"):
        check_reachable(device)
    assert is_reachable(replace(device, rpc=Rpc("tracker", 9190, "other")))


def test_check_reachable_refuses_a_device_when_it_has_more_instructions_than_this_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"cpu_model": "AMD EPYC", "cpu": "znver3", "isa": "avx2"}
    monkeypatch.setattr("tcl.devices.host._own_cpu", lambda: own)
    unnamed = Device("d", {"kind": "llvm", "num-cores": 1}, facts={"cpu_model": "AMD EPYC", "isa": "avx512"})
    with pytest.raises(BadInput, match="a machine with avx512 and this one has avx2"):
        check_reachable(unnamed)
    check_reachable(replace(unnamed, facts={**unnamed.facts, "isa": "avx2"}))


def test_on_this_host_notes_the_cpu_only_where_the_device_is_this_machine() -> None:
    here = Device("d", {"kind": "llvm", "num-cores": 1})
    own = detect_host().facts
    assert on_this_host(here).facts == {"cpu_model": own["cpu_model"], "cpu": own["cpu"]}
    for other in (
        replace(here, rpc=Rpc("tracker", 9190, "d")),
        replace(here, target={**here.target, "mtriple": "riscv64-unknown-linux-gnu"}),
        replace(here, target={"kind": "cuda"}),
    ):
        assert on_this_host(other) == other
