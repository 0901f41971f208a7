"""Where a broker's audit log is, and what is written of administration inside the Ray cluster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from raybroker.broker.services.auditing import INSIDE, audit_of, audited, security_directory
from raybroker.config import Config
from raybroker.errors import ConfigError, InvalidDestinationError


def test_files_of_security_are_beside_the_stores_unless_a_directory_is_named(tmp_path: Path) -> None:
    assert security_directory(Config.from_values({}), tmp_path) == tmp_path / "security"
    assert security_directory(Config.from_values({}), None) is None
    assert security_directory(Config.from_values({"raybroker.security.dir": "/etc/mq"}), tmp_path) == Path("/etc/mq")


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({}, "stores/security/audit/b1.log"),
        ({"raybroker.audit.dir": "apart"}, "apart/b1.log"),
        ({"raybroker.security.dir": "named"}, "named/audit/b1.log"),
    ],
)
def test_the_audit_log_is_where_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config = Config.from_values({"imq.audit.enabled": True, **settings})
    audit = audit_of(config, Path("stores"), "b1", lambda: 0.0)
    audit.record("start")
    audit.close()
    assert json.loads((tmp_path / where).read_text())["broker"] == "b1"


def test_without_the_switch_nothing_is_written_and_without_a_place_it_is_refused(tmp_path: Path) -> None:
    assert audit_of(Config.from_values({}), tmp_path, "b1", lambda: 0.0).path is None
    with pytest.raises(ConfigError, match=r"name raybroker\.audit\.dir"):
        audit_of(Config.from_values({"imq.audit.enabled": True}), None, "b1", lambda: 0.0)


def test_changes_are_written_with_how_they_went_and_reading_is_not(tmp_path: Path) -> None:
    audit = audit_of(Config.from_values({"imq.audit.enabled": True}), tmp_path, "b1", lambda: 0.0)

    async def carry_out(verb: str, args: dict[str, Any]) -> str:
        if args.get("name") == "missing":
            raise InvalidDestinationError("queue 'missing' does not exist")
        return verb

    async def work() -> None:
        assert await audited(audit, carry_out, "list_destinations", {}) == "list_destinations"
        assert await audited(audit, carry_out, "purge_destination", {"name": "q"}) == "purge_destination"
        for verb in ("destroy_destination", "query_destination"):
            with pytest.raises(InvalidDestinationError):
                await audited(audit, carry_out, verb, {"name": "missing"})

    asyncio.run(work())
    assert audit.path is not None
    rows = [json.loads(line) for line in audit.path.read_text().splitlines()]
    assert [(row["event"], row["result"], row["user"], row["what"], row.get("reason", "")) for row in rows] == [
        ("admin", "ok", INSIDE, "purge_destination(name='q')", ""),
        ("admin", "refused", INSIDE, "destroy_destination(name='missing')", "queue 'missing' does not exist"),
    ]
