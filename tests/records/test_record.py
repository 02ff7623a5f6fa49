"""Workloads and records as JSON."""

import json
from dataclasses import replace

from tcl.records.record import MeasureRecord, Workload


def test_workload_and_record_survive_json(workload: Workload, make_record) -> None:
    assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload
    for number in (0, 9):
        record = make_record(number)
        assert MeasureRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_key_follows_the_program_and_not_the_names(workload: Workload) -> None:
    renamed = Workload.create("metaschedule", "other", '["123","BBBB"]', workload.summary)
    assert renamed.key == workload.key
    assert Workload.create("metaschedule", "x", '["124","AAAA"]', workload.summary).key != workload.key
    assert Workload.create("ansor", "x", '["123","AAAA"]', workload.summary).key != workload.key


def test_content_id_follows_what_was_measured(make_record) -> None:
    record = make_record(1)
    assert record.content_id() == replace(record, origin="import", tvm_version="").content_id()
    for other in (
        replace(record, trace="[]"),
        replace(record, timestamp=1.0),
        replace(record, run_seconds=(1.0,)),
        replace(record, workload="0"),
    ):
        assert other.content_id() != record.content_id()
