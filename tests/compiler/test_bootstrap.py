import subprocess
import sys

import pytest

from tcl.compiler.bootstrap import intrinsic_family


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("target", "family"),
    [
        ({"kind": "llvm", "mtriple": "x86_64-linux-gnu"}, "x86"),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}, "arm_cpu"),
        ({"kind": "llvm", "mtriple": "riscv64-unknown-linux-gnu"}, "riscv_cpu"),
        ({"kind": "cuda", "arch": "sm_90"}, "cuda"),
        ({"kind": "vulkan"}, None),
    ],
)
def test_intrinsic_family_follows_the_target(target: dict, family: str | None) -> None:
    assert intrinsic_family(target) == family


def test_import_tvm_leaves_torch_out_and_other_targets_unparsed() -> None:
    out = run_python(
        "import sys\n"
        "from tcl.compiler.bootstrap import import_tvm\n"
        "tvm = import_tvm({'kind': 'llvm', 'mtriple': 'x86_64-linux-gnu'})\n"
        "from tvm.s_tir import meta_schedule as ms\n"
        "from tvm import te, IRModule\n"
        "a = te.placeholder((8,))\n"
        "mod = IRModule({'main': te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1.0)])})\n"
        "target = {'kind': 'llvm', 'num-cores': 2}\n"
        "ms.TuneContext(mod, target=target, space_generator='post-order-apply').generate_design_space()\n"
        "from tvm.s_tir import TensorIntrin\n"
        "assert TensorIntrin.get('dot_16x4_vnni') is not None\n"
        "print('torch' in sys.modules, 'tvm.s_tir.tensor_intrin.cuda' in sys.modules)\n"
    )
    assert out.split() == ["False", "False"]


@pytest.mark.parametrize("first", ["torch", "tvm"])
def test_torch_and_tvm_share_a_process_when_either_is_imported_first(first: str) -> None:
    steps = {
        "torch": "import torch\n",
        "tvm": "from tcl.compiler.bootstrap import import_tvm\nimport_tvm()\nimport_tvm()\n",
    }
    second = "tvm" if first == "torch" else "torch"
    out = run_python(
        steps[first] + steps[second] + "import tvm\n"
        "print(int(torch.ones(3).sum()), tvm.runtime.tensor(torch.ones(3).numpy()).numpy().sum())\n"
    )
    assert out.split() == ["3", "3.0"]


def test_exp_is_lowered_as_ours_when_tvm_was_imported_by_somebody_else() -> None:
    out = run_python(
        "import tvm\n"
        "from tcl.compiler.bootstrap import import_tvm\n"
        "import_tvm()\n"
        "from tvm import te, tirx, IRModule\n"
        "a = te.placeholder((8,))\n"
        "mod = IRModule({'main': te.create_prim_func([a, te.compute((8,), lambda i: tirx.exp(a[i]))])})\n"
        "print('expf' in tvm.compile(mod, {'kind': 'llvm'}).mod.inspect_source('s'))\n"
    )
    assert out.split() == ["False"]
