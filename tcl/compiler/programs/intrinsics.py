"""Mathematical functions as plain arithmetic, so that loops over them become vectors on every CPU.

LLVM has no vector form of ``expf`` and calls the C library once per element, which takes most of a softmax's time.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

_LOG2_E = 1.44269504088896341
_LN2_HIGH = 0.693359375  # ln 2 to so few bits that its products with n are exact
_LN2_LOW = -2.12194440e-4  # the rest
_COEFFICIENTS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_LOWEST, _HIGHEST = -104.0, 89.0  # beyond them the result is 0 or infinite
_SHIFT = 192  # makes n positive
_EXPONENT_BIAS, _MANTISSA_BITS = 127, 23


def register() -> None:
    """Have TVM lower ``exp`` of float32 on CPUs by `_exp`; once in a process."""
    tirx.op.register_intrin_lowering("tirx.exp", target="llvm", f=_exp, level=11)


def _exp(call: Any) -> Any:
    """exp(x) = 2^n exp(r) with r in [-ln 2 / 2, ln 2 / 2]: the range reduction and polynomial of Cephes' ``expf``.

    Within two units in the last place; subnormal results, infinities and NaN are those of the C library.
    """
    x = call.args[0]
    kind = str(x.ty.dtype)  # "float32x16" in a vector loop
    if not kind.startswith("float32"):
        return tirx.call_llvm_pure_intrin(x.ty.dtype, "llvm.exp", x)  # TVM's own rule
    bounded = tirx.max(tirx.min(x, _HIGHEST), _LOWEST)
    shifted = bounded * _LOG2_E + (_SHIFT + 0.5)
    n = tirx.Cast(kind.replace("float", "int"), shifted) - _SHIFT  # a cast rounds towards zero
    whole = tirx.Cast(kind, n)
    r = bounded - whole * _LN2_HIGH - whole * _LN2_LOW
    polynomial = r * _COEFFICIENTS[0]
    for coefficient in _COEFFICIENTS[1:]:
        polynomial = (polynomial + coefficient) * r
    small = polynomial * r + r + 1.0
    first = n >> 1  # in two steps: 2^128 and 2^-149 are no normal numbers
    scaled = small * _power(first, kind) * _power(n - first, kind)
    return tirx.Select(tirx.isnan(x), x, scaled)


def _power(n: Any, kind: str) -> Any:
    """2^n as float32, for n in [-126, 127]."""
    return tirx.reinterpret(kind, (n + _EXPONENT_BIAS) << _MANTISSA_BITS)
