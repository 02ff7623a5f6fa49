"""Mamba-1 and Mamba-2 blocks with the parameters of ``mamba_ssm``, exact and fast on CPU for short sequences.

The state dictionaries of :class:`Mamba` and :class:`Mamba2` have the names and shapes of ``mamba_ssm.Mamba`` and
``mamba_ssm.Mamba2``, so weights go either way. On CUDA with ``mamba_ssm`` installed its fused kernels run; everywhere
else the forms below do, which are the same mathematics:

* Mamba-1 (Gu & Dao 2023, arXiv 2312.00752, eq. 2): the recurrence ``h[t] = a[t] * h[t-1] + b[t]`` with everything
  but the recurrence itself vectorised over time, and a hand-written backward pass over the same recurrence.
* Mamba-2 (Dao & Gu 2024, arXiv 2405.21060, section 6): the quadratic "dual" form, one masked L x L product per head.
"""

import functools
import importlib.util
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@functools.cache
def _fused_kernels() -> tuple[Any, Any] | None:
    """(selective_scan_fn, mamba_chunk_scan_combined) of ``mamba_ssm``; None where it is not installed."""
    if (
        importlib.util.find_spec("mamba_ssm") is None
        or importlib.util.find_spec("selective_scan_cuda") is None
    ):
        return None
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    return selective_scan_fn, mamba_chunk_scan_combined


class LinearRecurrence(torch.autograd.Function):
    """``h[t] = a[t] * h[t-1] + b[t]`` along the first axis, with ``h[-1] = 0``.

    One fused multiply-add per step in either direction. Autograd's own record of the loop would keep and walk several
    small tensors for each step.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        states = torch.empty_like(b)
        states[0] = b[0]
        for t in range(1, len(b)):
            torch.addcmul(b[t], a[t], states[t - 1], out=states[t])
        ctx.save_for_backward(a, states)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        a, states = ctx.saved_tensors
        (upstream,) = gradients
        grad_b = torch.empty_like(upstream)
        grad_b[-1] = upstream[-1]
        for t in range(len(a) - 2, -1, -1):
            torch.addcmul(upstream[t], a[t + 1], grad_b[t + 1], out=grad_b[t])
        grad_a = torch.zeros_like(a)
        torch.mul(grad_b[1:], states[:-1], out=grad_a[1:])
        return grad_a, grad_b


def selective_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Selective scan of Mamba-1, time first.

    Parameters
    ----------
    u, delta : float[L, n, d]
        Inputs and positive step sizes.
    A : float[d, s]
        Negative decay rates.
    B, C : float[L, n, s]
        Input and output projections of each step.
    D : float[d]
        Skip connection.

    Returns
    -------
    float[L, n, d]
    """
    decay = torch.exp(delta.unsqueeze(-1) * A)  # (L, n, d, s)
    drive = (delta * u).unsqueeze(-1) * B.unsqueeze(2)  # (L, n, d, s)
    states = LinearRecurrence.apply(decay, drive)  # (L, n, d, s)
    return torch.matmul(states, C.unsqueeze(-1)).squeeze(-1) + u * D


def state_space_dual(x: Tensor, log_decay: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Mamba-2's scan in its quadratic dual form, ``Y = (L ∘ C Bᵀ) X`` with L the lower-triangular decay matrix.

    Parameters
    ----------
    x : float[n, L, h, p]
        Inputs of each head, already multiplied by the step size.
    log_decay : float[n, L, h]
        Step size times (negative) decay rate.
    B, C : float[n, L, s]
        Shared by all heads (one group).

    Returns
    -------
    float[n, L, h, p]
    """
    length = x.shape[1]
    total = log_decay.transpose(1, 2).cumsum(-1)  # (n, h, L)
    future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    exponent = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(future, -torch.inf)  # (n, h, L, L)
    attention = torch.exp(exponent) * torch.matmul(C, B.transpose(1, 2)).unsqueeze(1)  # (n, h, L, L)
    return torch.matmul(attention, x.transpose(1, 2)).transpose(1, 2)


def _causal_convolution(x: Tensor, convolution: nn.Conv1d, time: int) -> Tensor:
    """Depthwise causal convolution along axis `time` (0 or 1) of float[., ., channels], then SiLU.

    Runs as a two-dimensional convolution over a channels-last view: no transposition, and several times faster on CPU
    than the one-dimensional kernel, forward and backward.
    """
    taps = convolution.weight.shape[-1]
    if time == 0:
        image, kernel = F.pad(x, (0, 0, 0, 0, taps - 1, 0)).unsqueeze(0), convolution.weight.unsqueeze(3)
    else:
        image, kernel = F.pad(x, (0, 0, taps - 1, 0)).unsqueeze(1), convolution.weight.unsqueeze(2)
    out = F.conv2d(image.permute(0, 3, 1, 2), kernel, convolution.bias, groups=len(kernel))
    return F.silu(out).permute(0, 2, 3, 1).reshape(x.shape)


def _step_size_bias(channels: int, low: float = 1e-3, high: float = 0.1, floor: float = 1e-4) -> Tensor:
    """Bias b such that softplus(b) is log-uniform in [low, high], as in ``mamba_ssm``."""
    step = torch.exp(torch.rand(channels) * (math.log(high) - math.log(low)) + math.log(low)).clamp(min=floor)
    return step + torch.log(-torch.expm1(-step))


class Mamba(nn.Module):
    """Mamba-1 block, parameter for parameter ``mamba_ssm.Mamba``.

    Parameters
    ----------
    d_model, d_state, d_conv, expand
        Width, state size per channel, convolution taps, and inner width over width.
    """

    def __init__(self, d_model: int, d_state: int = 16, d_conv: int = 4, expand: int = 2) -> None:
        super().__init__()
        self.d_inner, self.d_state = expand * d_model, d_state
        self.dt_rank = math.ceil(d_model / 16)
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.conv1d = nn.Conv1d(self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner)
        nn.init.uniform_(self.dt_proj.weight, -(self.dt_rank**-0.5), self.dt_rank**-0.5)
        with torch.no_grad():
            self.dt_proj.bias.copy_(_step_size_bias(self.d_inner))
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, d_state + 1)).repeat(self.d_inner, 1))
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map float[n, L, d_model] to the same shape; position t sees positions up to t only."""
        x, z = self.in_proj(hidden.transpose(0, 1)).chunk(2, dim=-1)  # (L, n, d_inner) each
        x = _causal_convolution(x, self.conv1d, time=0)
        dt, B, C = self.x_proj(x).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        A = -torch.exp(self.A_log.float())
        kernels = _fused_kernels() if x.is_cuda else None
        if kernels is not None:
            channels_first = (
                v.permute(1, 2, 0).contiguous() for v in (x, F.linear(dt, self.dt_proj.weight), B, C, z)
            )
            u, delta, B, C, z = channels_first
            bias = self.dt_proj.bias.float()
            y = kernels[0](
                u, delta, A, B, C, self.D.float(), z=z, delta_bias=bias, delta_softplus=True
            ).permute(2, 0, 1)
        else:
            y = selective_scan(x, F.softplus(self.dt_proj(dt)), A, B, C, self.D) * F.silu(z)
        return self.out_proj(y.transpose(0, 1))


class GatedRMSNorm(nn.Module):
    """RMS norm of ``x * silu(z)``, as ``mamba_ssm``'s ``RMSNormGated(norm_before_gate=False)``."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        x = x * F.silu(z)
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Mamba2(nn.Module):
    """Mamba-2 (SSD) block with one group, parameter for parameter ``mamba_ssm.Mamba2``.

    Parameters
    ----------
    d_model, d_state, d_conv, expand
        Width, state size, convolution taps, and inner width over width.
    headdim
        Channels of a head; must divide ``expand * d_model``.
    """

    def __init__(
        self, d_model: int, d_state: int = 16, d_conv: int = 4, expand: int = 2, headdim: int = 32
    ) -> None:
        super().__init__()
        self.d_inner, self.d_state, self.headdim = expand * d_model, d_state, headdim
        if self.d_inner % headdim:
            raise ValueError(f"headdim {headdim} does not divide the inner width {self.d_inner}")
        heads = self.d_inner // headdim
        channels = self.d_inner + 2 * d_state
        self.in_proj = nn.Linear(d_model, self.d_inner + channels + heads, bias=False)  # z, (x, B, C), dt
        self.conv1d = nn.Conv1d(channels, channels, d_conv, groups=channels, padding=d_conv - 1)
        self.dt_bias = nn.Parameter(_step_size_bias(heads))
        self.A_log = nn.Parameter(torch.log(torch.empty(heads).uniform_(1, 16)))
        self.D = nn.Parameter(torch.ones(heads))
        self.norm = GatedRMSNorm(self.d_inner)
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map float[n, L, d_model] to the same shape; position t sees positions up to t only."""
        n, length, _ = hidden.shape
        heads = len(self.dt_bias)
        z, xBC, dt = self.in_proj(hidden).split(
            [self.d_inner, self.d_inner + 2 * self.d_state, heads], dim=-1
        )
        dt = F.softplus(dt + self.dt_bias)  # (n, L, heads)
        xBC = _causal_convolution(xBC, self.conv1d, time=1)
        x, B, C = xBC.split([self.d_inner, self.d_state, self.d_state], dim=-1)
        x = x.reshape(n, length, heads, self.headdim)
        A = -torch.exp(self.A_log.float())
        kernels = _fused_kernels() if x.is_cuda else None
        if kernels is not None:
            y = kernels[1](x, dt, A, B.unsqueeze(2), C.unsqueeze(2), chunk_size=64, D=self.D)
        else:
            y = state_space_dual(x * dt.unsqueeze(-1), dt * A, B, C) + x * self.D.unsqueeze(-1)
        return self.out_proj(self.norm(y.reshape(n, length, self.d_inner), z))
