"""Traces of the design spaces that MetaSchedule (TVM 0.27) makes for a CPU and a GPU."""

import json
from pathlib import Path

import pytest

Trace = list[list]


@pytest.fixture(scope="session")
def traces() -> dict[str, Trace]:
    """[instructions, decisions] by name of the operator."""
    return json.loads((Path(__file__).parents[1] / "data" / "traces.json").read_text())
