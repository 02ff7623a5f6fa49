"""`tcl promotions`: compile subscribed models for new champions."""

import click

from tcl.cli.command import Report, command
from tcl.cli.execute import run_job
from tcl.devices.store import DeviceStore
from tcl.errors import BadInput
from tcl.jobs.promotions import PromotionsArguments
from tcl.settings import load_settings


@command("promotions", kept="what was decided is kept; the same command again goes on from there")
@click.option("--once", is_flag=True, help="Look once and leave; without it, follow promotions until Ctrl-C.")
@click.option(
    "--device", metavar="NAME", help="With --once: look at the models subscribed to this device only."
)
def entry(once: bool, device: str | None) -> Report:
    """Compile the subscribed models again for devices whose champion changed.

    A new package takes the old one's place only when it is verified and not slower. Giving the alias `champion` to an
    earlier version brings its package back.
    """
    if device is not None:
        if not once:
            raise BadInput("--device goes with --once; without it, all subscriptions are followed")
        DeviceStore(load_settings().devices_dir).get(device)
    if not once:
        from tcl.jobs.promotion_watch import watch

        watch(load_settings())
    report = run_job("promotions", PromotionsArguments(device), {})
    report.require()
    nothing = "no model is subscribed; tcl subscribe MODEL.onnx --device NAME subscribes one"
    return Report(
        report.to_json(), [] if report.outcomes else [nothing], [report.table()] if report.outcomes else []
    )
