"""Logs made up for the importers."""

import json

import pytest

KEY = '["matmul_layer", 128, 64, 256]'


def ansor_line(number: int, *, error: int = 0, key: str = KEY) -> str:
    """A record of auto_scheduler; lines of different numbers differ."""
    steps = [
        ["SP", 2, 0, 128, [2, 1, 4], 1],
        ["SP", 2, 4, 256, [2, 2, number % 16 + 1], 1],
        ["SP", 2, 8, 64, [4], 1],
        ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
        ["PR", 2, 0, "auto_unroll_max_step$16"],
    ]
    seconds = [1e10] if error else [1e-3 * (number + 1), 1.5e-3 * (number + 1)]
    return json.dumps(
        {
            "i": [[key, "llvm -mcpu=core-avx2", [8, 64, 64, 0, 0, 0, 0, 0], "", 0, []], [[], steps]],
            "r": [seconds, error, 2.0, 1600000000 + number],
            "v": "v0.6",
        }
    )


@pytest.fixture
def ansor_log() -> str:
    """100 lines, five of them failures."""
    return "".join(ansor_line(n, error=4 if n % 20 == 7 else 0) + "\n" for n in range(100))
