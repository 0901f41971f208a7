"""Queues as sources and sinks of a real Spark: what is in a batch, what is acknowledged, and what is written once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.tabular.once import open_ledger
from raybroker.wire.scram import Verifier

MESSAGES = 200


@pytest.fixture(scope="module")
def broker(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """A connection to a broker in this process, and the URL by which Spark's processes reach it."""
    from raybroker.spark import register

    register(spark)
    users = tmp_path_factory.mktemp("users")
    UserFile(users / "passwd").add("ann", UserEntry(str(Verifier.from_password("secret", b"s" * 16, 64)), "admin"))
    properties = {
        "imq.service.activelist": "jms",
        "imq.hostname": "127.0.0.1",
        "imq.portmapper.port": 0,
        "raybroker.security.dir": str(users),
    }
    with rb.loopback(properties=properties) as connection:
        open_ledger(connection)
        services = connection.admin().list_services()
        port = next(row["port"] for row in services if row["service"] == "portmapper")
        yield connection, f"mq://127.0.0.1:{port}"


def source(where: Any, url: str, **options: object) -> Any:
    """A reader or writer of Spark with our format."""
    made = where.format("raybroker").option("url", url).option("username", "ann").option("password", "secret")
    for name, value in options.items():
        made = made.option(name, value)
    return made


def bodies(connection: Any, queue: str) -> list[Any]:
    return [message.body for message in connection.session().browser(queue)]


@pytest.mark.long
def test_a_batch_read_looks_and_a_batch_write_sends(spark: Any, broker: Any) -> None:
    connection, url = broker
    rows = spark.createDataFrame([(n, f"row {n}") for n in range(MESSAGES)], "n int, text string").repartition(3, "n")
    source(rows.write, url, queue="looked").mode("append").save()
    assert sorted(body["n"] for body in bodies(connection, "looked")) == list(range(MESSAGES))
    assert bodies(connection, "raybroker-written") == []
    found = source(spark.read, url, queue="looked", selector="JMSPriority = 4").schema("id string, n int, text string")
    looked = found.load()
    assert looked.where("n < 10").count() == 10
    assert {(row.n, row.text) for row in looked.collect()} == {(n, f"row {n}") for n in range(MESSAGES)}
    assert len(bodies(connection, "looked")) == MESSAGES
    whole = source(spark.read, url, queue="looked").load().first()
    assert whole.body.startswith(b'{"n": ')
    assert whole.redelivered is False
    for wrong, why in (
        ({"queue": "looked", "maxMessages": 10}, "more than maxMessages=10"),
        ({"topic": "t"}, "no messages to look at"),
        ({"queue": "q", "quue": "q"}, "not known"),
    ):
        with pytest.raises(Exception, match=why):
            source(spark.read, url, **wrong).load().collect()
    with pytest.raises(Exception, match="messages are added"):
        source(rows.write, url, queue="looked").mode("overwrite").save()


def test_a_stream_that_fails_and_is_started_again_has_each_message_once_on_both_sides(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    from pyspark.sql.functions import udf

    connection, url = broker
    connection.session().producer("in").send_many({"n": n} for n in range(MESSAGES))
    failed = str(tmp_path / "failed")

    @udf("int")
    def fails_once(n: int) -> int:
        if n == 149 and not Path(failed).exists():  # In the second part of the second batch; the first part is stored.
            time.sleep(2)
            Path(failed).touch()
            raise ValueError("no 149")
        return n

    def run() -> None:
        read = source(spark.readStream, url, queue="in", maxMessages=100, partitions=2).schema("n int").load()
        written = source(read.select(fails_once("n").alias("n")).writeStream, url, queue="out", bodyColumn="n")
        query = written.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    with pytest.raises(Exception, match="no 149"):
        run()
    before = bodies(connection, "out")
    assert set(before) >= set(range(100))
    run()
    assert sorted(bodies(connection, "out")) == list(range(MESSAGES))
    assert len(set(before) - set(range(100))) in (0, 50)
    connection.session().producer("in").send_many({"n": n} for n in range(MESSAGES, 2 * MESSAGES))
    run()
    assert sorted(bodies(connection, "out")) == list(range(2 * MESSAGES))


@pytest.mark.long
def test_a_durable_subscription_is_a_stream_in_a_table(spark: Any, broker: Any, tmp_path: Path) -> None:
    connection, url = broker
    session = connection.session()
    session.shared_durable_consumer(session.topic("prices"), "lake").close()
    session.producer(session.topic("prices")).send_many(f"price {n}" for n in range(50))

    def run() -> list[str]:
        read = (
            source(spark.readStream, url, topic="prices", subscription="lake").schema("body string, id string").load()
        )
        query = (
            read.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "state"))
            .option("path", str(tmp_path / "table"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return sorted(row.body for row in spark.read.parquet(str(tmp_path / "table")).collect())

    assert run() == sorted(f"price {n}" for n in range(50))
    session.producer(session.topic("prices")).send_many(f"price {n}" for n in range(50, 60))
    assert run() == sorted(f"price {n}" for n in range(60))
    with pytest.raises(Exception, match="needs option subscription"):
        source(spark.readStream, url, topic="prices").load().writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "other")
        ).start().awaitTermination(60)
