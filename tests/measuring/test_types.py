import pytest

from tcl.measuring.types import MeasureRequest, MeasureResult, seconds_at_usual_speed, summarise_failures


def result(error: str | None) -> MeasureResult:
    request = MeasureRequest("key", "[]", {"kind": "llvm"}, "[]", "random")
    return MeasureResult(request, "[]", () if error else (1.0,), None, error, 0.0)


def test_summarise_failures_counts_by_cause_and_shows_the_commonest() -> None:
    errors = ["timeout: the run took too long", None, "crash: signal 11", "crash: signal 6"]
    assert summarise_failures(map(result, errors)) == (
        "3 of 4 candidates failed (crash 2, timeout 1), for example crash: signal 11"
    )


def test_summarise_failures_is_empty_when_none_failed() -> None:
    assert summarise_failures([result(None)]) == ""
    assert summarise_failures([]) == ""


@pytest.mark.parametrize(
    ("reference", "usual", "expected"),
    [(None, 1.0, 2.0), (1.0, None, 2.0), (1.0, 1.0, 2.0), (1.05, 1.0, 2 / 1.05), (0.95, 1.0, 2 / 0.95)],
)
def test_seconds_at_usual_speed_divides_the_median_by_the_drift(reference, usual, expected) -> None:
    assert seconds_at_usual_speed((9.0, 1.0, 2.0), reference, usual) == pytest.approx(expected)


@pytest.mark.parametrize(("reference", "expected"), [(1.6, 2 / 1.1), (0.5, 2 * 1.1)])
def test_seconds_at_usual_speed_are_corrected_by_a_tenth_when_the_machine_is_in_another_phase(
    reference, expected
) -> None:
    assert seconds_at_usual_speed((2.0,), reference, 1.0) == pytest.approx(expected)
