"""What becomes of a search's result."""

from types import SimpleNamespace
from typing import Any

import pytest

from tcl.jobs.tuning import Known, settle
from tcl.search.task import Observation
from tcl.search.tuning import TaskOutcome

KEY = "workload"


@pytest.mark.parametrize(("wrong", "status"), [(0, "default"), (1, "predicted")])
def test_settle_keeps_a_prediction_when_what_failed_before_gave_wrong_results(
    wrong: int, status: str
) -> None:
    task: Any = SimpleNamespace(workload=SimpleNamespace(key=KEY))
    known = Known({KEY: [Observation("trace", None)]}, None, {}, {KEY: wrong})
    ((outcome, _),) = settle([TaskOutcome(task, "predicted", "other trace", 1.0)], known)
    assert outcome.status == status
