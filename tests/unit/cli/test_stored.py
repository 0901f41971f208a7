"""Messages in destinations from the command line: look, delete, move, send back, export and import (W-129)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from raybroker.cli.objects import archive, stored
from raybroker.model.blocks.block import Block, encode_block


@pytest.fixture
def full(broker: Any) -> Any:
    """A queue with five messages whose consumers are paused."""
    producer = broker.session().producer("a")
    for n in range(5):
        producer.send(f"body {n}", properties={"n": n}, priority=4)
    producer.close()
    broker.admin().pause_destination("queue", "a", "consumers")
    return broker


def bodies(broker: Any, name: str, kind: str = "queue") -> list[Any]:
    return [row["body"] for row in broker.admin().browse_messages(kind, name)["messages"]]


def test_list_shows_messages_and_takes_none(raybroker: Any, full: Any) -> None:
    lines = raybroker.output("list", "msg", "-n", "a").splitlines()
    assert len(lines) == 6
    assert lines[0].split() == ["ID", "STATE", "TIME", "PRIO", "DELIVERIES", "BYTES", "BODY"]
    assert lines[1].split()[1] == "waiting"
    assert lines[1].endswith("body 0")
    rows = raybroker.json("list", "msg", "-n", "a", "-s", "n > 2")
    assert [(row["body"], row["properties"]["n"]) for row in rows] == [("body 3", 3), ("body 4", 4)]
    assert len(raybroker.json("list", "msg", "-n", "a", "--max", "2")) == 2
    assert len(raybroker.json("list", "msg", "-n", "a")) == 5


def test_list_goes_through_all_pages(raybroker: Any, full: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "PAGE", 2)
    assert [row["body"] for row in raybroker.json("list", "msg", "-n", "a", "--max", "0")] == [
        f"body {n}" for n in range(5)
    ]
    assert len(raybroker.json("list", "msg", "-n", "a", "--max", "3")) == 3


def test_a_long_body_is_shown_by_its_beginning_on_one_line(raybroker: Any, broker: Any) -> None:
    broker.session().producer("b").send("first\nsecond " + "x" * 500)
    line = raybroker.output("list", "msg", "-n", "b").splitlines()[1]
    assert "second" in line
    assert line.endswith("…")
    assert len(line) < 200
    assert raybroker.json("list", "msg", "-n", "b")[0]["body"].endswith("x" * 500)


def test_of_dead_messages_the_list_says_why_and_with_which_exception(raybroker: Any, broker: Any) -> None:
    session = broker.session(ack="client")
    session.producer("c").send("x")
    broker.start()
    try:
        raise ValueError("no customer 17")
    except ValueError as error:
        session.consumer("c").receive(60).reject(error)
    dead = broker.admin().browse_messages
    deadline = time.monotonic() + 60
    while not dead("queue", "mq.sys.dmq")["messages"] and time.monotonic() < deadline:
        time.sleep(0.003)
    header, line = raybroker.output("list", "msg", "-n", "mq.sys.dmq").splitlines()
    assert header.endswith("CAUSE")
    assert line.endswith("ERROR: ValueError: no customer 17")
    (row,) = raybroker.json("list", "msg", "-n", "mq.sys.dmq")
    assert 'raise ValueError("no customer 17")' in row["properties"]["RAYBROKER_TRACEBACK"]


def test_delete_takes_what_is_chosen(raybroker: Any, full: Any) -> None:
    assert raybroker.output("delete", "msg", "-f", "-n", "a", "-s", "n < 2") == "deleted 2 messages of queue a\n"
    first = raybroker.json("list", "msg", "-n", "a")[0]["id"]
    assert raybroker.output("delete", "msg", "-f", "-n", "a", "--id", first) == "deleted 1 message of queue a\n"
    assert bodies(full, "a") == ["body 3", "body 4"]
    assert raybroker.output("delete", "msg", "-f", "-n", "a", "--all", "-f") == "deleted 2 messages of queue a\n"


def test_a_running_destination_keeps_its_messages(raybroker: Any, full: Any) -> None:
    full.admin().resume_destination("queue", "a")
    full.admin().create_destination("queue", "b")
    for words in (("delete", "msg", "-f", "-n", "a", "--all"), ("move", "msg", "-n", "a", "--to", "b", "--all")):
        result = raybroker(*words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "pause" in result.stderr
    assert len(bodies(full, "a")) == 5


def test_move_takes_messages_elsewhere_with_their_ids(raybroker: Any, full: Any) -> None:
    full.admin().create_destination("queue", "b")
    before = [row["id"] for row in raybroker.json("list", "msg", "-n", "a", "-s", "n = 3")]
    out = raybroker.output("move", "msg", "-n", "a", "--to", "b", "-s", "n = 3")
    assert out == "moved 1 message of queue a to queue b\n"
    assert [row["id"] for row in raybroker.json("list", "msg", "-n", "b")] == before
    assert raybroker.output("receive", "b") == "body 3\n"
    assert "body 3" not in bodies(full, "a")


def test_export_and_import_bring_the_same_messages_back(raybroker: Any, full: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.msgs"
    out = raybroker.output("export", "msg", str(file), "-n", "a", "-s", "n <> 1")
    assert out == f"exported 4 messages of queue a to {file} ({file.stat().st_size} bytes)\n"
    full.admin().create_destination("queue", "b")
    assert raybroker.output("import", "msg", str(file), "-n", "b") == "imported 4 messages into queue b\n"
    expected = [row for row in raybroker.json("list", "msg", "-n", "a") if row["properties"]["n"] != 1]
    found = raybroker.json("list", "msg", "-n", "b")
    kept = ("id", "body", "properties", "priority", "persistent", "timestamp")
    assert [[row[key] for key in kept] for row in found] == [[row[key] for key in kept] for row in expected]
    assert len(bodies(full, "a")) == 5


def test_a_file_is_replaced_only_with_force(raybroker: Any, full: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.msgs"
    file.write_text("precious")
    result = raybroker("export", "msg", str(file), "-n", "a")
    assert (result.exit_code, file.read_text()) == (2, "precious")
    assert "-f" in result.stderr
    raybroker.output("export", "msg", str(file), "-n", "a", "-f")
    assert archive.check(file) > 0


def test_an_export_that_fails_leaves_no_file(raybroker: Any, broker: Any, tmp_path: Path) -> None:
    assert raybroker("export", "msg", str(tmp_path / "f"), "-n", "missing").exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_imports_nothing(raybroker: Any, full: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.msgs"
    raybroker.output("export", "msg", str(file), "-n", "a")
    data = bytearray(file.read_bytes())
    data[-12] ^= 1
    file.write_bytes(data)
    full.admin().create_destination("queue", "b")
    result = raybroker("import", "msg", str(file), "-n", "b")
    assert result.exit_code == 2
    assert "is damaged at byte" in result.stderr
    assert bodies(full, "b") == []


def test_blocks_are_imported_in_calls_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block goes in parts where it has several messages; one that is larger than the bound goes alone."""
    blocks = [
        encode_block(
            [b"x" * size] * count,
            producer=1,
            first_seq=7,
            timestamp_ms=1,
            persistent=True,
            kinds=0,
        )
        for count, size in ((1, 10), (1, 10), (5, 30), (1, 300), (1, 10))
    ]
    monkeypatch.setattr(stored, "IMPORT_BYTES", 150)
    calls = [[Block(block) for block in batch] for batch in stored._batches(iter(blocks))]
    assert [[(block.count, block.first_seq) for block in call] for call in calls] == [
        [(1, 7), (1, 7)],
        [(2, 7)],
        [(3, 9)],
        [(1, 7)],
        [(1, 7)],
    ]


def test_an_import_that_fails_half_way_says_how_much_is_there(
    raybroker: Any, full: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.msgs"
    raybroker.output("export", "msg", str(file), "-n", "a")
    full.admin().create_destination("queue", "b", maxNumMsgs=2)
    monkeypatch.setattr(stored, "IMPORT_BYTES", 1)
    result = raybroker("import", "msg", str(file), "-n", "b")
    assert result.exit_code == 1
    assert "queue b does not take 1 more messages now" in result.stderr
    assert f"2 messages of {file} are in queue b already, the first ones" in result.stderr
    assert bodies(full, "b") == ["body 0", "body 1"]


def test_what_does_not_fit_stays_and_the_command_says_how_many_went(raybroker: Any, full: Any) -> None:
    full.admin().create_destination("queue", "b", maxNumMsgs=2, limitBehavior="FLOW_CONTROL")
    result = raybroker("move", "msg", "-n", "a", "--to", "b", "--all")
    assert result.exit_code == 1
    assert "2 messages of queue a were moved to queue b; the others stay in queue a: " in result.stderr
    assert (bodies(full, "a"), bodies(full, "b")) == ([f"body {n}" for n in (2, 3, 4)], ["body 0", "body 1"])


def test_dead_messages_are_sent_back(raybroker: Any, broker: Any) -> None:  # B15
    broker.admin().create_destination("queue", "b", redeliveryLimit=0)
    broker.start()
    broker.session().producer("b").send("poison", properties={"n": 1})
    session = broker.session(transacted=True)
    consumer = session.consumer("b")
    assert consumer.receive(timeout=10).body == "poison"
    session.rollback()
    consumer.close()
    assert bodies(broker, "b") == []
    assert raybroker.output("retry", "msg", "-s", "n = 2") == "sent 0 messages of queue mq.sys.dmq back\n"
    assert raybroker.output("retry", "msg") == "sent 1 message of queue mq.sys.dmq back\n"
    assert bodies(broker, "b") == ["poison"]
    assert bodies(broker, "mq.sys.dmq") == []


def test_dead_messages_that_cannot_be_sent_back_are_named(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "b")
    broker.start()
    broker.session().producer("b").send("poison")
    broker.session(ack="client").consumer("b").receive(timeout=10).reject()
    while not bodies(broker, "mq.sys.dmq"):
        pass
    broker.admin().destroy_destination("queue", "b")
    assert raybroker.output("retry", "msg") == (
        "sent 0 messages of queue mq.sys.dmq back\n"
        "1 message not sent back: the destination or the subscription is gone\n"
    )


def test_what_is_damaged_is_skipped_when_that_is_confirmed(raybroker: Any, broker: Any) -> None:
    broker.admin().create_destination("queue", "b")
    assert raybroker.output("skip", "msg", "-f", "-n", "b", "-f") == "skipped 0 messages of queue b\n"
