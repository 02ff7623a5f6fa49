"""A task's design space: its sketches and the decisions left open in them.

TVM's space generator turns a program into a few sketches (traces without post-processing); candidates of one sketch
differ only in the decisions of its sampling instructions. The space keeps those decisions as integer arrays, so that
drawing, mutating and scoring thousands of candidates costs milliseconds. Validity is only checked where one is built.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

MAX_TILINGS = 20_000
"""Above this number of ways to tile a loop, an even subset of them is kept."""


@lru_cache(maxsize=4096)
def perfect_tilings(extent: int, parts: int, max_innermost: int) -> np.ndarray:
    """Return every way to write `extent` as an ordered product of `parts` factors, the last at most `max_innermost`.

    Returns
    -------
    int64[ways, parts], in lexicographic order; read-only.
    """
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]

    def split(rest: int, left: int) -> Iterator[tuple[int, ...]]:
        if left == 1:
            if rest <= max_innermost:
                yield (rest,)
            return
        for divisor in divisors:
            if rest % divisor == 0:
                for tail in split(rest // divisor, left - 1):
                    yield (divisor, *tail)

    ways = list(split(extent, parts))
    if not ways:
        raise ValueError(
            f"no tiling of {extent} into {parts} factors with the innermost at most {max_innermost}"
        )
    table = np.array(ways, dtype=np.int64)
    if len(table) > MAX_TILINGS:
        table = table[np.linspace(0, len(table) - 1, MAX_TILINGS).astype(np.int64)]
    table.flags.writeable = False
    return table


@dataclass(frozen=True)
class Choice:
    """One sampling instruction of a sketch.

    Attributes
    ----------
    instruction
        Its index in the trace.
    options
        ``int64[ways, factors]`` for tilings, ``int64[ways]`` for categorical decisions and compute locations.
    """

    instruction: int
    options: np.ndarray


@dataclass(frozen=True)
class Sketch:
    """A trace with open decisions.

    Attributes
    ----------
    instructions
        The trace's instructions as JSON values.
    choices
        Its sampling instructions, in trace order.
    """

    instructions: list[Any]
    choices: tuple[Choice, ...]

    @property
    def size(self) -> float:
        """Number of candidates."""
        return float(np.prod([float(len(c.options)) for c in self.choices])) if self.choices else 1.0


@dataclass
class Population:
    """Candidates of one sketch.

    Attributes
    ----------
    sketch
        Index of the sketch in its space.
    genes
        ``int32[n, choices]``: for each choice, the index of the option taken.
    """

    sketch: int
    genes: np.ndarray

    def __len__(self) -> int:
        return len(self.genes)


class DesignSpace:
    """The sketches of one task.

    Parameters
    ----------
    traces
        One trace per sketch as JSON values ``[instructions, decisions]``, without post-processing.
    locations
        Per sketch: instruction index of each ``SampleComputeLocation`` → the locations seen to be valid.
    """

    def __init__(self, traces: Sequence[Any], locations: Sequence[Mapping[int, Sequence[int]]]) -> None:
        self.sketches = tuple(
            _parse_sketch(trace, found) for trace, found in zip(traces, locations, strict=True)
        )

    @property
    def size(self) -> float:
        """Number of candidates over all sketches."""
        return sum(sketch.size for sketch in self.sketches)

    def sample(self, count: int, rng: np.random.Generator) -> list[Population]:
        """Draw `count` distinct candidates (fewer where the space is smaller), evenly over the sketches."""
        share = np.full(len(self.sketches), count // len(self.sketches))
        share[: count % len(self.sketches)] += 1
        populations = []
        for index, sketch in enumerate(self.sketches):
            genes = _draw(sketch, int(share[index]), rng)
            if len(genes):
                populations.append(Population(index, genes))
        return populations

    def columns(self, population: Population) -> dict[int, np.ndarray]:
        """Return the decisions of a population: instruction index → ``int64[n, factors]`` or ``int64[n]``."""
        choices = self.sketches[population.sketch].choices
        return {c.instruction: c.options[population.genes[:, i]] for i, c in enumerate(choices)}

    def trace(self, population: Population, row: int) -> str:
        """Return one candidate's trace as JSON text ``[instructions, decisions]``."""
        sketch = self.sketches[population.sketch]
        decisions = [
            [c.instruction, c.options[population.genes[row, i]].tolist()]
            for i, c in enumerate(sketch.choices)
        ]
        return json.dumps([sketch.instructions, decisions], separators=(",", ":"))

    def locate(self, trace: str) -> Population | None:
        """Find a recorded trace (with or without post-processing) in this space; None where it is not in it.

        TVM moves a compute location that turns out invalid to another one; the nearest that the space knows stands in.
        """
        instructions, decisions = json.loads(trace)
        cut = next(
            (i for i, inst in enumerate(instructions) if inst[0] == "EnterPostproc"), len(instructions)
        )
        head, taken = instructions[:cut], {index: value for index, value in decisions if index < cut}
        for number, sketch in enumerate(self.sketches):
            if sketch.instructions != head:
                continue
            genes = []
            for choice in sketch.choices:
                gene = _option(choice, taken.get(choice.instruction), head[choice.instruction][0])
                if gene is None:
                    return None
                genes.append(gene)
            return Population(number, np.array([genes], dtype=np.int32).reshape(1, len(genes)))
        return None


def _option(choice: Choice, value: Any, instruction: str) -> int | None:
    """Index of the option that a decision took."""
    if value is None:
        return None
    if instruction == "SampleComputeLocation":
        return int(np.abs(choice.options - value).argmin())
    same = choice.options == np.asarray(value)
    hits = np.flatnonzero(same.all(axis=1) if choice.options.ndim == 2 else same)
    return int(hits[0]) if len(hits) else None


def _parse_sketch(trace: Any, locations: Mapping[int, Sequence[int]]) -> Sketch:
    instructions, decisions = trace
    choices = []
    for index, decision in decisions:
        name, _, attrs, _ = instructions[index]
        if name == "SamplePerfectTile":
            extent = int(np.prod(decision))
            options = perfect_tilings(extent, int(attrs[0]), int(attrs[1]))
        elif name == "SampleCategorical":
            options = np.arange(len(attrs[0]))
        elif name == "SampleComputeLocation":
            options = np.array(sorted(set(locations.get(index, ())) | {int(decision)}))
        else:  # an instruction this space does not vary: the generator's decision stays
            options = np.asarray([decision])
        choices.append(Choice(index, options))
    return Sketch(instructions, tuple(choices))


def _draw(sketch: Sketch, count: int, rng: np.random.Generator) -> np.ndarray:
    """Up to `count` distinct rows of genes."""
    sizes = np.array([len(c.options) for c in sketch.choices], dtype=np.int64)
    if not len(sizes):
        return np.zeros((min(count, 1), 0), dtype=np.int32)
    if sketch.size <= 4 * count:  # small: enumerate
        total = int(sketch.size)
        flat = rng.permutation(total)[:count]
        return np.array(np.unravel_index(flat, sizes), dtype=np.int32).T
    genes = rng.integers(0, sizes, size=(2 * count, len(sizes)), dtype=np.int64).astype(np.int32)
    _, first = np.unique(genes, axis=0, return_index=True)
    return genes[np.sort(first)][:count]
