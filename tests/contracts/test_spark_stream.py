"""The stream of Spark without Spark: a driver that dies at any of its steps, over a broker in this process."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, IllegalStateError

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from raybroker.spark import stream as spark_stream
from raybroker.spark.options import SourceOptions, parse_options
from raybroker.spark.rows import row_of, whole_body
from raybroker.spark.stream import QueueStream

MESSAGES = 60
BROKER = "spark-stream"


class HereOptions(SourceOptions):
    """The broker of this process."""

    def connect(self) -> Any:
        made = rb.loopback(broker=BROKER)
        made.start()
        return made


def options(**given: str) -> HereOptions:
    return HereOptions(*parse_options(given))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(spark_stream, "WAIT_S", 0.05)
    monkeypatch.setattr(spark_stream, "MORE_S", 0.01)
    with rb.loopback(broker=BROKER) as connection:
        yield connection


class DiedError(Exception):
    """The driver of the query was killed."""


class Query:
    """What Spark does with a stream, and what it writes down; the sink stores a batch under its number."""

    def __init__(self, reads: SourceOptions, rng: random.Random, dies: float) -> None:
        self._reads = reads
        self._rng = rng
        self.dies = dies
        self.offsets: list[Any] = []
        self.finished = 0
        self.sink: dict[int, list[Any]] = {}

    def run(self, limit: Any, *, available_now: bool = False) -> None:
        """Until there is nothing more, or it dies."""
        stream = QueueStream(self._reads, [("body", "bigint"), ("redelivered", "boolean")])
        if available_now:
            stream.prepareForTriggerAvailableNow()
        try:
            if not self.offsets:
                self.offsets.append(json.loads(json.dumps(stream.initialOffset())))
            if self.finished < len(self.offsets) - 1:
                self._batch(stream)
            while True:
                start = self.offsets[-1]
                end = json.loads(json.dumps(stream.latestOffset(start, limit)))
                self._may_die()
                if end == start:
                    return  # The last batch is not told to be done before there is another one.
                self.offsets.append(end)
                self._may_die()
                stream.commit(start)
                self._batch(stream)
        finally:
            stream.stop()

    def _batch(self, stream: QueueStream) -> None:
        self._may_die()
        number = len(self.offsets) - 1
        parts = stream.partitions(*self.offsets[-2:])
        self.sink[number] = [row[0] for part in parts for row in stream.read(part)]
        self._may_die()
        self.finished = number
        self._may_die()

    def _may_die(self) -> None:
        if self._rng.random() < self.dies:
            raise DiedError


@pytest.mark.parametrize("seed", range(6))
def test_each_message_is_in_one_batch_however_often_the_driver_dies(broker: Any, seed: int) -> None:
    rng = random.Random(seed)
    query = Query(options(queue="q", maxMessages="7"), rng, 0.15)
    producer = broker.session().producer("q")
    sent = 0
    for _ in range(200):
        count = rng.randrange(8)
        producer.send_many(range(sent, sent + count))
        sent += count
        try:
            query.run(ReadMaxRows(7))
        except DiedError:
            continue
        if sent >= MESSAGES:
            break
    query.dies = 0
    query.run(ReadMaxRows(7))
    found = [body for rows in query.sink.values() for body in rows]
    assert sorted(found) == list(range(sent))
    left = [message.body for message in broker.session().browser("q")]
    assert set(left) <= set(query.sink[max(query.sink)])
    assert broker.admin().query_destination("queue", "q")["messages"] == len(left)


def test_a_durable_subscription_goes_on_where_it_was(broker: Any) -> None:
    reads = options(topic="prices", subscription="spark")
    query = Query(reads, random.Random(0), 0)
    query.run(ReadMaxRows(100))  # The subscription is made.
    producer = broker.session().producer(broker.session().topic("prices"))
    producer.send_many(range(10))
    query.run(ReadMaxRows(4))
    producer.send_many(range(10, 15))
    query.run(ReadAllAvailable())
    assert [query.sink[number] for number in sorted(query.sink)] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10, 11, 12, 13, 14],
    ]  # fmt: skip


def test_a_read_of_what_is_there_ends_at_what_came_later(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = broker.session().producer("q")
    producer.send_many(range(10))
    query = Query(options(queue="q"), random.Random(0), 0)
    batch = QueueStream.partitions

    def and_more_comes(self: QueueStream, *offsets: Any) -> Any:
        monkeypatch.setattr(self, "_ends_ms", self._ends_ms and self._ends_ms - 60_000)  # As if it came a minute later.
        producer.send_many(range(10, 20))
        return batch(self, *offsets)

    monkeypatch.setattr(QueueStream, "partitions", and_more_comes)
    query.run(ReadMaxRows(100), available_now=True)
    assert query.sink == {1: list(range(10))}


def test_a_batch_whose_messages_are_gone_is_told(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.session().producer("q").send_many(range(5))
    first = QueueStream(options(queue="q"), [("body", "bigint")])
    start = first.initialOffset()
    end = first.latestOffset(start, ReadMaxRows(5))
    first.stop()
    broker.admin().purge_destination("queue", "q")
    monkeypatch.setattr(spark_stream, "AGAIN_S", 0.05)
    again = QueueStream(options(queue="q"), [("body", "bigint")])
    with pytest.raises(IllegalStateError, match="5 of the 5 messages of a batch that is run again"):
        again.partitions(start, end)
    again.stop()


def test_options_are_checked() -> None:
    for wrong, why in (
        ({}, "say option"),
        ({"queue": "q", "topic": "t"}, "not both"),
        ({"queue": "q", "subscription": "s"}, "say topic too"),
        ({"queue": "q", "maxmessages": "0"}, "maxMessages='0'"),
        ({"queue": "q", "maxBytes": "many"}, "maxBytes='many'"),
        ({"queue": "q", "quue": "q"}, "'quue' is not known"),
    ):
        with pytest.raises(ConfigError, match=why):
            parse_options(wrong)


def test_bodies_become_columns(broker: Any) -> None:
    broker.session().producer("q").send({"n": 1, "text": "a"}, type="order")
    message = broker.session().receive("q", timeout=5)
    columns = [("type", "string"), ("n", "bigint"), ("gone", "string"), ("body", "string")]
    assert row_of(message, columns) == ("order", 1, None, '{"n": 1, "text": "a"}')
    assert whole_body(b"\xff", "string") == "\ufffd"
    assert whole_body("ä", "binary") == "ä".encode()
    assert whole_body([1, None], "binary") == b"[1, null]"
    assert whole_body(3, "bigint") == 3
