"""Traces cut into what the candidates of a sketch share and what sets them apart.

The shared part is stored once (Parquet's dictionary), the rest is a few numbers, so that a record costs some
tens of bytes. Cutting and joining work on the text itself: what comes back is the same text, byte for byte (of a
MetaSchedule trace, the text without blanks).
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

HOLE = "#"
"""Stands for a number that was taken out."""

_ENTER_POSTPROC = ',["EnterPostproc",[],[],[]]'
_DECODER = json.JSONDecoder()
_LONGEST = 15
_ANSOR_NUMBERS = re.compile(rf'("SP",\d+,\d+,)(\d+),\[(\d+(?:,\d+){{0,{_LONGEST}}})\]|(_max_step\$)(\d+)')
_HOLES = [f",[{','.join([HOLE] * (count + 1))}]" for count in range(_LONGEST + 1)]
_TAIL_NUMBERS = re.compile(r"(?<=[\[,])\d+(?=[\],])")


class TraceParts(NamedTuple):
    """A trace in parts; `join_trace` puts them together.

    Attributes
    ----------
    skeleton : str
        MetaSchedule: the instructions before post-processing. Ansor: the steps, with holes for split extents,
        split lengths and unroll limits.
    decisions : str
        MetaSchedule: the decisions' JSON. Ansor: the numbers of the holes, separated by commas. Empty when
        the skeleton is the whole text.
    tail : str
        MetaSchedule: the instructions of post-processing, with holes for integers. Ansor: empty.
    tail_numbers : str
        The numbers of the tail's holes, separated by commas.
    """

    skeleton: str
    decisions: str = ""
    tail: str = ""
    tail_numbers: str = ""


def is_metaschedule(trace: str) -> bool:
    """Whether a trace is of MetaSchedule's form, not of Ansor's."""
    return trace.startswith(("[[[", "[[]"))


def split_trace(trace: str) -> TraceParts:
    """Cuts the JSON text of a trace; text of any other kind stays whole."""
    if not is_metaschedule(trace):
        return TraceParts(*_cut_ansor(trace))
    try:
        if " " in trace:
            trace = json.dumps(json.loads(trace), separators=(",", ":"))
        _, end = _DECODER.raw_decode(trace, 1)
    except ValueError:
        return TraceParts(trace)
    if trace[end : end + 2] != ",[" or trace[-1] != "]":
        return TraceParts(trace)
    cut = trace.find(_ENTER_POSTPROC, 1, end)
    if cut < 0:
        return TraceParts(trace[1:end], trace[end + 1 : -1])
    tail, numbers = trace[cut : end - 1], ""
    if HOLE not in tail:
        numbers = ",".join(_TAIL_NUMBERS.findall(tail))
        tail = _TAIL_NUMBERS.sub(HOLE, tail)
    return TraceParts(trace[1:cut] + "]", trace[end + 1 : -1], tail, numbers)


def join_trace(parts: TraceParts) -> str:
    """The text that `split_trace` was given."""
    if not parts.decisions:
        return parts.skeleton
    if not parts.decisions.startswith("["):
        return _fill(parts.skeleton, parts.decisions)
    tail = _fill(parts.tail, parts.tail_numbers) if parts.tail_numbers else parts.tail
    return f"[{parts.skeleton[:-1]}{tail}],{parts.decisions}]"


def _cut_ansor(trace: str) -> tuple[str, str]:
    if HOLE in trace:
        return trace, ""
    # split gives the text before a number, then the groups: prefix, extent, lengths, or pragma, limit
    pieces = _ANSOR_NUMBERS.split(trace)
    skeleton = [pieces[0]]
    numbers: list[str] = []
    for at in range(1, len(pieces), 6):
        prefix, extent, lengths, pragma, limit, after = pieces[at : at + 6]
        if pragma is None:
            numbers += (extent, lengths)
            skeleton += (prefix, HOLE, _HOLES[lengths.count(",")], after)
        else:
            numbers.append(limit)
            skeleton += (pragma, HOLE, after)
    return "".join(skeleton), ",".join(numbers)


def _fill(text: str, numbers: str) -> str:
    pieces = text.split(HOLE)
    return "".join(piece for pair in zip(pieces, [*numbers.split(","), ""], strict=True) for piece in pair)
