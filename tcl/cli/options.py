"""Options that several commands share."""

import math
from typing import Any

import click

from tcl.settings import LARGEST


class WholeNumber(click.IntRange):
    """A whole number within limits, called by that name in messages."""

    name = "whole number"

    def __init__(self, low: int, high: int = LARGEST[int]) -> None:
        super().__init__(low, high)


class Number(click.FloatRange):
    """A number within limits, called by that name in messages."""

    name = "number"

    def __init__(self, low: float, *, open_below: bool = False) -> None:
        super().__init__(low, LARGEST[float], min_open=open_below)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        number = super().convert(value, parameter, context)
        if math.isnan(number):  # which no comparison refuses
            self.fail(f"{value} is no number.", parameter, context)
        return number


models_argument = click.argument("models", metavar="MODEL.onnx...", nargs=-1, required=True)
model_argument = click.argument("model", metavar="MODEL.onnx")
device_option = click.option("--device", required=True, metavar="NAME", help="A recorded device.")
shapes_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=1x3x224x224",
    help="Shape of an input with symbolic dimensions, or the value of one symbol: N=1. May be repeated.",
)
trials_option = click.option(
    "--trials",
    type=WholeNumber(0),
    help="Candidates to measure while tuning; 0 goes by the model alone; setting tuning.trials.",
)
package_option = click.option("-o", "--output", required=True, metavar="DIR", help="Folder of the package.")
