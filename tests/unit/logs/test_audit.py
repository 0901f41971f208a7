"""The audit log by itself: its lines, what a flood of refusals leaves of it, and what of verbs it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raybroker.admin.verbs import VERBS
from raybroker.logs.audit import FIELD_CHARS_MAX, READING, REFUSALS_PER_S, REFUSED, Audit, changes, shown


class Log:
    def __init__(self, folder: Path, bytes_max: int = -1) -> None:
        self.now_s = 1_700_000_000.0
        self.path = folder / "b1.log"
        self.audit = Audit(self.path, {"broker": "b1"}, lambda: self.now_s, bytes_max)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def test_a_line_has_what_is_known_and_nothing_else(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.audit.record("login", user="ann\n{}", address="", reason="x" * 1000)
    (row,) = log.rows()
    assert row.pop("time").startswith("2023-11-1")
    assert row == {
        "audit": "AUDIT",
        "broker": "b1",
        "event": "login",
        "result": "ok",
        "user": "ann\n{}",
        "reason": "x" * FIELD_CHARS_MAX,
    }
    assert log.path.stat().st_mode & 0o077 == 0


def test_a_flood_of_refusals_is_counted_and_other_lines_are_written(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for _ in range(REFUSALS_PER_S + 25):
        log.audit.record("login", REFUSED, user="eve")
    log.audit.record("admin", user="root")
    assert len(log.rows()) == REFUSALS_PER_S + 1
    log.now_s += 1
    log.audit.record("login", REFUSED, user="eve")
    assert log.rows()[-2]["reason"] == "25 further refusals in one second"
    assert log.rows()[-1]["user"] == "eve"


@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("h1", "b1-h1.log"),
        ("b1/h1", "b1-h1.log"),
        ("b1/d-orders", "b1-d-orders.log"),
        ("b2/h1", "b1-b2-h1.log"),
    ],
)
def test_a_host_writes_beside_its_broker_and_none_when_there_is_none(tmp_path: Path, key: str, file: str) -> None:
    log = Log(tmp_path, bytes_max=65_536)
    host = Audit.of_host(log.audit.told(), key, lambda: log.now_s)
    host.record("denied", REFUSED, user="bob")
    (row,) = [json.loads(line) for line in (tmp_path / file).read_text().splitlines()]
    assert (row["broker"], row["host"], row["user"], host.bytes_max) == ("b1", key, "bob", 65_536)
    silent = Audit.of_host(Audit.silent().told(), "h1", lambda: log.now_s)
    silent.record("denied", REFUSED)
    silent.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [file]


def test_verbs_are_shown_without_what_may_be_content_of_messages() -> None:
    told = shown("update_destination", {"type": "queue", "name": "a\n", "changes": {"maxNumMsgs": "secret"}})
    assert told == "update_destination(type='queue', name='a\\n', maxNumMsgs)"
    assert shown("import_messages", {"name": "q", "blocks": [b"secret"]}) == "import_messages(name='q', blocks)"
    assert shown("delete_messages", {"name": "q", "selector": "id = 'secret'"}) == "delete_messages(name='q', selector)"
    assert len(shown("create_destination", {"name": "x" * 10_000})) < 200


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_either_reads_or_is_written_down(verb: str) -> None:
    reads = {
        "list",
        "query",
        "browse",
        "export",
        "metrics",
        "why",
        "backup",
        "check",
    }
    assert changes(verb) is (verb.partition("_")[0] not in reads), f"{verb}: {READING}"
