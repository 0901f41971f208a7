"""A damaged store in the hands of an administrator: the error names the command, and what is intact comes out."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import StoreDamagedError
from raybroker.store.journal.format import BATCH_MAGIC
from tests import program
from tests.contracts.handles import WAIT_S

PROPERTIES = {"raybroker.store.segment_bytes": "1m", "raybroker.metrics.enabled": False}
COUNT = 20
LOST = 12


def opened(store: Path) -> Any:
    connection = rb.loopback(store, properties=PROPERTIES)
    connection.start()
    return connection


def command(*arguments: Any, expect: int = 0) -> str:
    done = program.invoke(*arguments)
    assert done.exit_code == expect, done.output
    return done.output


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twenty messages, of which five are acknowledged; the head of the batch with one of them has rotted."""
    store = tmp_path / "the store"
    with opened(store) as connection:
        session = connection.session(ack="client")
        producer = session.producer("orders")
        for number in range(COUNT):
            producer.send(f"order {number:02d}.")
        consumer = session.consumer("orders", prefetch=5)
        consumer.receive_many(5, timeout=WAIT_S)[-1].acknowledge()
    rot(store, f"order {LOST:02d}.".encode())
    return store


def rot(store: Path, text: bytes) -> None:
    """One bit of the head of the batch that has the text."""
    (segment,) = (path for path in store.glob("segment-*") if text in path.read_bytes())
    data = bytearray(segment.read_bytes())
    data[data.rindex(BATCH_MAGIC, 0, data.index(text)) + 60] ^= 4
    segment.write_bytes(data)


def taken(connection: Any) -> dict[str, bool]:
    """Body → whether it was flagged as redelivered."""
    consumer = connection.session().consumer("orders")
    found = {}
    while (message := consumer.receive(timeout=0.5)) is not None:
        found[message.body] = message.redelivered
    return found


def test_the_error_names_the_command_and_after_it_what_is_intact_comes_out(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StoreDamagedError) as refused:
        opened(store)
    program, *arguments = shlex.split(str(refused.value).partition("says what that is, and ")[2].partition(" sets ")[0])
    assert (program, arguments) == ("raybroker", ["salvage", str(store)])
    assert "entries" in command(*arguments, "--dry-run", expect=4)
    assert "say yes with --force" in command(*arguments, expect=2)
    assert not list(store.glob("set-aside-*"))
    with pytest.raises(StoreDamagedError):
        opened(store)
    done = json.loads(command(*arguments, "-f", "--json"))
    assert (done["done"], done["kept_messages"]) == (True, COUNT - 5 - 1)
    record = json.loads((Path(done["folder"]) / "record.json").read_text())
    assert [lost["entries"] for lost in record["ranges"]] == [1]
    with opened(store) as connection:
        found = taken(connection)
    expected = [f"order {number:02d}." for number in range(5, COUNT) if number != LOST]
    assert sorted(found) == expected
    assert any("what was set aside" in record.getMessage() for record in caplog.records)
    assert "there is nothing to set aside" in command(*arguments, "-f")


def test_what_was_acknowledged_in_a_lost_range_comes_again_flagged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with opened(store) as connection:
        session = connection.session(ack="client")
        for number in range(3):
            session.producer("orders").send(f"order {number:02d}.")
        consumer = session.consumer("orders", prefetch=1)
        for _ in range(3):
            consumer.receive(timeout=WAIT_S).acknowledge()
    (segment,) = (path for path in store.glob("segment-*") if b"order 00." in path.read_bytes())
    data = bytearray(segment.read_bytes())
    for at in range(data.index(b"order 02."), len(data) - 512):
        if data.startswith(BATCH_MAGIC, at):
            data[at + 60] ^= 1
    segment.write_bytes(data)
    command("salvage", store, "-f")
    with opened(store) as connection:
        assert taken(connection) == {f"order {number:02d}.": True for number in range(3)}


def test_a_store_that_is_open_is_refused(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybroker.actors.stores.salvage.LOCK_WAIT_S", 0.1)
    command("salvage", store, "-f")
    with opened(store):
        assert "is open in process" in command("salvage", store, "-f", expect=1)
    assert "there is no store in" in command("salvage", store.parent, "-f", expect=1)
