"""The farm of the settings: a Dask cluster, used through Prefect's Dask task runner."""

import contextlib
from collections.abc import Iterator

from tcl.errors import BadInput, WorkFailed
from tcl.farm import Farm, farmed_out
from tcl.settings import Settings

_ANSWER_SECONDS = 10.0  # of the scheduler, when a flow begins


@contextlib.contextmanager
def farm(settings: Settings) -> Iterator[None]:
    """Within the block, build candidates and make features on the Dask workers, where a scheduler is set.

    Raises
    ------
    BadInput
        When Prefect's Dask task runner is not installed.
    WorkFailed
        When the scheduler does not answer or has no workers.
    """
    address = settings.prefect.dask
    if address is None:
        yield
        return
    try:
        from prefect_dask import DaskTaskRunner
    except ModuleNotFoundError:
        raise BadInput(
            f"prefect.dask is {address}, but Dask is not installed: pip install '.[scale]' in TCL's source folder"
        ) from None
    with contextlib.ExitStack() as stack:
        try:
            runner = stack.enter_context(
                DaskTaskRunner(address=address, client_kwargs={"timeout": _ANSWER_SECONDS})
            )
            slots = sum(runner.client.nthreads().values())
        except (OSError, ValueError) as error:
            raise WorkFailed(f"the Dask scheduler {address} does not answer: {error}") from error
        if slots == 0:
            raise WorkFailed(
                f"the Dask scheduler {address} has no workers; start some with `dask worker {address}`"
            )
        with farmed_out(Farm(runner.client.get_executor(pure=False), slots)):
            yield
