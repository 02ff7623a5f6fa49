"""Options that several commands share."""

import click


class WholeNumber(click.IntRange):
    """A whole number within limits, called by that name in messages."""

    name = "whole number"


class Number(click.FloatRange):
    """A number within limits, called by that name in messages."""

    name = "number"


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
