"""A step: its outcome, when time wakes it, and what it writes down."""

from __future__ import annotations

from raybroker.core.durable import records
from raybroker.core.step import Step
from raybroker.model.blocks.record import NOTE


def test_every_step_begins_with_an_outcome_of_its_own() -> None:
    step = Step(3)
    first = step.begin(10)
    step.touch(0)
    step.wake(50)
    assert step.begin(20) is step.out is not first
    assert (step.now_ms, list(step.touched), step.out.wake_at, first.wake_at) == (20, [], None, 50)


def test_the_earliest_time_wakes() -> None:
    step = Step(3)
    step.begin(10)
    for at_ms in (None, 70, 60, 80):
        step.wake(at_ms)
    assert step.out.wake_at == 60


def test_rows_are_written_in_as_many_records_as_they_need() -> None:
    step = Step(3)
    step.begin(10)
    step.record_rows(records.ACKED, 2, [])
    assert step.out.records == []
    step.record_rows(records.ACKED, 2, [records.RecordRow(1, 0b1)], [records.Span(4, 5)])
    step.record_rows(records.FAILED, 2, [records.RecordRow(n, 0b1) for n in range(records.ROWS_MAX + 1)])
    assert {(entry.kind, entry.destination) for entry in step.out.records} == {(NOTE, 3)}
    found = [records.decode(entry.meta) for entry in step.out.records]
    assert [(one.kind, len(one.spans), len(one.rows)) for one in found] == [
        (records.ACKED, 1, 1),
        (records.FAILED, 0, records.ROWS_MAX),
        (records.FAILED, 0, 1),
    ]


def test_headers_of_a_block_that_cannot_be_read_are_named_as_damage() -> None:
    step = Step(3)
    step.begin(10)
    assert step.peek(4) is None
    assert step.out.damaged == [4]
