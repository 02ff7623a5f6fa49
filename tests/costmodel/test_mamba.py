"""The blocks against mamba-ssm's own reference functions, forward and gradients, in float32."""

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tcl.costmodel.mamba import LinearRecurrence, Mamba, Mamba2, selective_scan, state_space_dual

KERNEL_MODULES = {
    "selective_scan_cuda": {},
    "mamba_ssm.ops.triton": {},
    "mamba_ssm.ops.triton.layer_norm": {"_layer_norm_fwd": None},
    "mamba_ssm.ops.triton.ssd_combined": {"mamba_chunk_scan_combined": None},
}
"""What mamba-ssm imports for CUDA only; its reference functions do not use them."""


@pytest.fixture(scope="module")
def reference() -> Iterator[types.SimpleNamespace]:
    """mamba-ssm's reference functions, on a machine without CUDA."""
    spec = importlib.util.find_spec("mamba_ssm")
    assert spec is not None and spec.submodule_search_locations, "mamba-ssm is part of the test environment"
    kept = dict(sys.modules)
    package = types.ModuleType("mamba_ssm")
    package.__path__ = [str(Path(location)) for location in spec.submodule_search_locations]
    sys.modules["mamba_ssm"] = package
    for name, names in KERNEL_MODULES.items():
        module = types.ModuleType(name)
        vars(module).update(names)
        sys.modules[name] = module
    interface: Any = importlib.import_module("mamba_ssm.ops.selective_scan_interface")
    minimal = importlib.import_module("mamba_ssm.modules.ssd_minimal")
    # `mamba_inner_ref` calls two functions that are CUDA kernels in production; their references stand in.
    interface.causal_conv1d_fn = _convolution
    interface.selective_scan_fn = interface.selective_scan_ref
    yield types.SimpleNamespace(
        selective_scan=interface.selective_scan_ref,
        mamba_inner=interface.mamba_inner_ref,
        ssd=minimal.ssd_minimal_discrete,
    )
    for name in set(sys.modules) - set(kept):
        if name.startswith(("mamba_ssm", "selective_scan_cuda")):
            del sys.modules[name]


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, activation: str) -> torch.Tensor:
    assert activation == "silu"
    out = F.conv1d(x, weight.unsqueeze(1), bias, padding=weight.shape[1] - 1, groups=len(weight))
    return F.silu(out[..., : x.shape[-1]])


def _compare(ours: torch.Tensor, theirs: torch.Tensor, inputs: list[torch.Tensor]) -> None:
    """Same values, and same gradients of a random projection for all inputs."""
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    direction = torch.randn_like(ours)
    mine = torch.autograd.grad((ours * direction).sum(), inputs, retain_graph=True)
    other = torch.autograd.grad((theirs * direction).sum(), inputs)
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("length", [1, 3, 24, 48])
def test_selective_scan_equals_mamba_ssm_when_given_the_same_inputs(
    reference: types.SimpleNamespace, length: int
) -> None:
    torch.manual_seed(length)
    n, d, s = 3, 8, 4
    u, delta = (torch.randn(length, n, d, requires_grad=True) for _ in range(2))
    B, C = (torch.randn(length, n, s, requires_grad=True) for _ in range(2))
    log_a, D = torch.randn(d, s, requires_grad=True), torch.randn(d, requires_grad=True)
    ours = selective_scan(u, F.softplus(delta), -log_a.exp(), B, C, D)
    first = (v.permute(1, 2, 0) for v in (u, delta, B, C))
    u_, delta_, B_, C_ = first
    theirs = reference.selective_scan(u_, delta_, -log_a.exp(), B_, C_, D, delta_softplus=True).permute(
        2, 0, 1
    )
    _compare(ours, theirs, [u, delta, B, C, log_a, D])


@pytest.mark.parametrize(("width", "length"), [(16, 1), (16, 2), (32, 24), (24, 48)])
def test_mamba_block_equals_mamba_ssm_when_given_the_same_weights(
    reference: types.SimpleNamespace, width: int, length: int
) -> None:
    torch.manual_seed(0)
    block = Mamba(width, d_state=8)
    hidden = torch.randn(4, length, width, requires_grad=True)
    xz = (block.in_proj.weight @ hidden.reshape(-1, width).t()).reshape(-1, 4, length).transpose(0, 1)
    theirs = reference.mamba_inner(
        xz,
        block.conv1d.weight,
        block.conv1d.bias,
        block.x_proj.weight,
        block.dt_proj.weight,
        block.out_proj.weight,
        None,
        -block.A_log.exp(),
        D=block.D,
        delta_bias=block.dt_proj.bias,
    )
    _compare(block(hidden), theirs, [hidden, *block.parameters()])


@pytest.mark.parametrize("length", [8, 16, 48])
def test_state_space_dual_equals_mamba_ssm_when_the_reference_works_in_chunks(
    reference: types.SimpleNamespace, length: int
) -> None:
    torch.manual_seed(length)
    n, h, p, s = 2, 3, 4, 5
    x = torch.randn(n, length, h, p, requires_grad=True)
    log_decay = -torch.rand(n, length, h)
    log_decay.requires_grad_(True)
    B, C = (torch.randn(n, length, s, requires_grad=True) for _ in range(2))
    by_head = (v.unsqueeze(2).expand(-1, -1, h, -1) for v in (B, C))
    theirs, _ = reference.ssd(x, log_decay, *by_head, block_len=8)
    _compare(state_space_dual(x, log_decay, B, C), theirs, [x, log_decay, B, C])


def test_mamba2_block_equals_mamba_ssm_when_assembled_from_its_parts(
    reference: types.SimpleNamespace,
) -> None:
    torch.manual_seed(0)
    block = Mamba2(16, d_state=8, headdim=8)
    hidden = torch.randn(3, 16, 16, requires_grad=True)
    z, xBC, dt = block.in_proj(hidden).split([32, 48, 4], dim=-1)
    xBC = _convolution(
        xBC.transpose(1, 2), block.conv1d.weight.squeeze(1), block.conv1d.bias, "silu"
    ).transpose(1, 2)
    x, B, C = xBC.split([32, 8, 8], dim=-1)
    x, dt = x.reshape(3, 16, 4, 8), F.softplus(dt + block.dt_bias)
    by_head = (v.unsqueeze(2).expand(-1, -1, 4, -1) for v in (B, C))
    y, _ = reference.ssd(x * dt.unsqueeze(-1), -block.A_log.exp() * dt, *by_head, block_len=16)
    y = (y + x * block.D[:, None]).reshape(3, 16, 32) * F.silu(z)
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * block.norm.weight
    _compare(block(hidden), block.out_proj(y), [hidden, *block.parameters()])


@pytest.mark.parametrize(
    ("block", "names"),
    [
        (
            Mamba(16),
            {
                "in_proj.weight",
                "conv1d.weight",
                "conv1d.bias",
                "x_proj.weight",
                "dt_proj.weight",
                "dt_proj.bias",
            }
            | {"A_log", "D", "out_proj.weight"},
        ),
        (
            Mamba2(16),
            {"in_proj.weight", "conv1d.weight", "conv1d.bias", "dt_bias", "A_log", "D", "norm.weight"}
            | {"out_proj.weight"},
        ),
    ],
)
def test_block_has_the_parameter_names_of_mamba_ssm(block: torch.nn.Module, names: set[str]) -> None:
    assert set(block.state_dict()) == names


def test_linear_recurrence_has_exact_gradients_when_checked_numerically() -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(LinearRecurrence.apply, (a, b))


@pytest.mark.parametrize("block", [Mamba(16), Mamba2(16)])
def test_block_ignores_later_steps_when_they_change(block: torch.nn.Module) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(2, 9, 16)
    changed = hidden.clone()
    changed[:, 5:] += 1
    torch.testing.assert_close(block(hidden)[:, :5], block(changed)[:, :5])


def test_mamba2_refuses_a_head_width_that_does_not_divide() -> None:
    with pytest.raises(ValueError, match="does not divide"):
        Mamba2(16, headdim=24)
