from tcl.measuring.types import MeasureRequest, MeasureResult, summarise_failures


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
