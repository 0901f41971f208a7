"""Users by verbs: of one broker's file, and of all brokers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from raybroker.broker.services.service_administration import ServiceAdministration
from raybroker.broker.services.user_administration import ClusterUsers, UserVerbs
from raybroker.config import Config
from raybroker.errors import ConfigError
from raybroker.security.user_file import UserFile

SCRAM = "SCRAM-SHA-256$1:c2FsdA==$a2V5:a2V5"


def users(file: UserFile | None, **properties: object) -> UserVerbs:
    config = Config.load(values={name.replace("__", "."): value for name, value in properties.items()})
    services = ServiceAdministration("b1")
    services.users, services.failure = file, "nothing listens"
    return UserVerbs(config, services)


def test_a_user_is_made_shown_and_deleted(tmp_path: Path) -> None:
    async def work() -> None:
        made = users(UserFile(tmp_path / "passwd"))
        assert await made.set_user("ann", SCRAM, "admin") == {"brokers": ["b1"], "down": []}
        assert list(await made.list_users()) == [{"broker": "b1", "user": "ann", "group": "admin", "active": True}]
        assert (await made.list_users(verifiers=True))[0]["verifier"] == SCRAM
        for _ in range(2):
            assert await made.destroy_user("ann") == {"brokers": ["b1"], "down": []}
        assert list(await made.list_users()) == []

    asyncio.run(work())


def test_what_cannot_be_is_refused_with_the_broker(tmp_path: Path) -> None:
    made = users(UserFile(tmp_path / "passwd"))
    with pytest.raises(ConfigError, match="is no verifier") as caught:
        asyncio.run(made.set_user("ann", "hush"))
    assert "hush" not in str(caught.value)
    asyncio.run(made.set_user("ann", SCRAM))
    with pytest.raises(ConfigError, match="broker b1: user 'ann' is of group user"):
        asyncio.run(made.set_user("ann", SCRAM, "admin"))


def test_users_in_ldap_and_none_at_all_are_refused(tmp_path: Path) -> None:
    ldap = users(UserFile(tmp_path / "passwd"), imq__authentication__basic__user_repository="ldap")
    for call in (ldap.list_users(), ldap.set_user("ann", SCRAM), ldap.destroy_user("ann")):
        with pytest.raises(ConfigError, match="broker b1 has its users in LDAP"):
            asyncio.run(call)
    with pytest.raises(ConfigError, match="has no connection services, and so no users: nothing listens"):
        asyncio.run(users(None).list_users())
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_has_not_done_it_is_named() -> None:
    async def everywhere(verb: str, args: dict[str, Any]) -> list[tuple[str, Any]]:
        return [("b1", {}), ("b3", {})]

    cluster = ClusterUsers(lambda: ["b1", "b2", "b3"], everywhere)
    for call in (cluster.set_user("ann", SCRAM), cluster.destroy_user("ann")):
        assert asyncio.run(call) == {"brokers": ["b1", "b3"], "down": ["b2"]}
