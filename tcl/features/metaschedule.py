"""MetaSchedule traces as step sequences.

A trace is a list of instructions ``[name, inputs, attributes, outputs]`` and the decisions that its
sampling instructions took. Candidates of one sketch share the instructions: these are read once, and the
decisions of all candidates flow through them as arrays. Old names (``GetBlock``) and those of TVM 0.27
(``GetSBlock``) are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tcl.features.replay import Instruction, Replay
from tcl.features.workload import WorkloadSummary


class SketchEncoder:
    """Encodes the candidates of one sketch.

    Parameters
    ----------
    instructions : list
        The first half of a trace's JSON. What follows ``EnterPostproc`` is ignored: it repeats the decisions.
    summary : WorkloadSummary, optional
        Gives the main block's loops their extents where no tile reveals them.

    Raises
    ------
    ValueError
        When this is not a list of instructions.
    """

    def __init__(self, instructions: list, summary: WorkloadSummary | None = None) -> None:
        self.instructions = _parse(instructions)
        self.summary = summary
        self.decisions: dict[int, int] = {}
        """Factors of each decision by instruction index; 0 for a single number."""
        for instruction in self.instructions:
            if instruction.name in ("SamplePerfectTile", "SamplePartitionedTile"):
                self.decisions[instruction.position] = len(instruction.outputs)
            elif instruction.name in ("SampleCategorical", "SampleComputeLocation"):
                self.decisions[instruction.position] = 0

    def encode(self, decisions: Sequence[list]) -> tuple[np.ndarray, np.ndarray]:
        """Features of candidates given by their decisions.

        Parameters
        ----------
        decisions : sequence of list
            For each candidate the second half of a trace's JSON: ``[[instruction index, decision], ...]``.

        Returns
        -------
        kinds : int16[n, L]
        values : float32[n, L, STEP_WIDTH]

        Raises
        ------
        ValueError
            When a decision does not fit its instruction.
        """
        try:
            taken = [dict(candidate) for candidate in decisions]
            columns = {}
            for index, factors in self.decisions.items():
                missing = [1] * factors if factors else -1 if self._is_location(index) else 0
                column = [missing if (value := d.get(index)) is None else value for d in taken]
                columns[index] = np.array(column, np.int64).reshape(
                    len(taken), *([factors] if factors else [])
                )
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"the decisions do not fit the sketch: {error}") from None
        return self.encode_arrays(columns, len(taken))

    def encode_arrays(self, columns: Mapping[int, np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
        """The same from arrays: instruction index → int[count] or, for tiles, int[count, factors].

        Raises
        ------
        ValueError
            When a column is missing or has another shape.
        """
        for index, factors in self.decisions.items():
            shape = (count, factors) if factors else (count,)
            if index not in columns or columns[index].shape != shape:
                raise ValueError(f"instruction {index} needs decisions of shape {shape}")
        return Replay(columns, count, self.summary).run(self.instructions)

    def _is_location(self, index: int) -> bool:
        return self.instructions[index].name == "SampleComputeLocation"


def _parse(instructions: Any) -> list[Instruction]:
    if not isinstance(instructions, list):
        raise ValueError("a trace's instructions are a list")
    parsed = []
    for index, item in enumerate(instructions):
        if not (isinstance(item, list) and len(item) == 4 and isinstance(item[0], str)):
            raise ValueError(f"instruction {index} is not [name, inputs, attributes, outputs]")
        if not all(isinstance(part, list) for part in item[1:]):
            raise ValueError(f"instruction {index} ({item[0]}) has a part that is no list")
        if item[0] == "EnterPostproc":
            break
        parsed.append(Instruction(item[0], item[1], item[2], item[3], index))
    return parsed
