"""Compiling for a board that is not at hand."""

from __future__ import annotations

import json
import struct

from command_line import Project, save_matmul

from tcl.devices.device import Device
from tcl.devices.store import DeviceStore

BOARD = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 4}
AARCH64 = 183


def test_compile_makes_an_unverified_package_when_the_board_is_not_at_hand(learnt: Project):
    model = save_matmul(learnt.root / "board.onnx", 24)
    learnt.ok("device", "add", "board", "--target", json.dumps(BOARD))
    refused = learnt.fail("compile", model, "--device", "board", "--trials", "4", "-o", "board", code=2)
    assert "--trials 0" in refused
    assert "nothing can be measured" in learnt.fail("measure", model, "--device", "board", code=2)
    compiled = learnt.run("compile", model, "--device", "board", "--trials", "0", "-o", "board")
    assert compiled.code == 0, compiled.err
    assert "neither verified nor timed" in compiled.out
    assert "knowledge base" in compiled.err  # nothing was learnt for the board
    manifest = json.loads((learnt.root / "board" / "tcl.json").read_text())
    assert (manifest["verification"], manifest["latency"]) == (None, None)
    library = (learnt.root / "board" / manifest["library"]).read_bytes()
    assert struct.unpack_from("<H", library, 18) == (AARCH64,)
    assert "aarch64" in learnt.fail("run", "board", code=2)


def test_compile_makes_an_unverified_package_when_this_host_has_another_cpu(learnt: Project):
    model = save_matmul(learnt.root / "cpu.onnx", 24)
    target = {"kind": "llvm", "mcpu": "znver4", "num-cores": 1}
    facts = {"cpu_model": "Another CPU", "isa": "avx512", "vector_bits": 512}
    DeviceStore(learnt.root / "devices").add(Device("cpu", target, facts=facts))
    compiled = learnt.run("compile", model, "--device", "cpu", "--trials", "0", "-o", "cpu")
    assert compiled.code == 0, compiled.err
    assert "cpu (x86_64 znver4, 1 core) is not at hand; check it there" in compiled.out
    assert "neither verifying nor timing: cpu is a machine with the CPU 'Another CPU'" in compiled.err
    manifest = json.loads((learnt.root / "cpu" / "tcl.json").read_text())
    assert (manifest["verification"], manifest["latency"]) == (None, None)
