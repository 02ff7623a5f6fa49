"""Following promotions for as long as a process runs: told of them by MLflow's server, or looking often."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_urlsafe

from tcl.console import note
from tcl.errors import WorkFailed
from tcl.files import private_text
from tcl.jobs.promotions import PromotionsArguments, PromotionsReport, run
from tcl.settings import Settings


def watch(settings: Settings) -> None:
    """Follow promotions until the process is interrupted."""
    wake, last = threading.Event(), PromotionsReport(())
    with told(settings, lambda device: wake.set()):
        while True:
            wake.clear()
            report = run(PromotionsArguments(), settings)
            for outcome in report.outcomes:
                if outcome not in last.outcomes:
                    why = f" ({outcome.reason})" if outcome.reason else ""
                    note(f"{outcome.model} for {outcome.device}: {outcome.action}{why}")
            last = report
            wake.wait(settings.promotion.poll_seconds)


@contextmanager
def told(settings: Settings, promoted: Callable[[str], None]) -> Iterator[str | None]:
    """Have `promoted` called with the device's name whenever somebody sets a champion, during the block.

    Only an MLflow server tells; a local database does not. Whoever uses this must look on a schedule as well.

    Yields
    ------
    str or None
        The webhook's address; None without a server, or when that does not tell this host.
    """
    from tcl.registry.versions import CHAMPION, KNOWLEDGE_BASE, model_owner
    from tcl.registry.webhooks import announce, served, withdraw

    if not served(settings):
        yield None
        return
    from tcl.webhook.receiver import receiving
    from tcl.webhook.signature import Verifier

    def aliased(model: str, alias: str, version: str) -> None:
        device = model_owner(model)
        if alias == CHAMPION and device not in (None, KNOWLEDGE_BASE):
            note(f"{model} version {version} was promoted")
            promoted(device)

    secret = private_text(settings.state_dir / "webhook-secret", lambda: token_urlsafe(32))
    verifier = Verifier(secret, settings.state_dir / "webhook-deliveries.json")
    with receiving(verifier, aliased, settings.promotion.webhook_port) as url:
        try:
            webhook = announce(settings, url, secret)
        except WorkFailed as error:
            note(f"promotions are looked for every {settings.promotion.poll_seconds:g} s only: {error}")
            yield None
            return
        note(f"MLflow at {settings.mlflow_tracking_uri} reports promotions to {url}")
        try:
            yield url
        finally:
            withdraw(settings, webhook)
