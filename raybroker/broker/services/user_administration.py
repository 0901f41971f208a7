"""Administration of the users of connection services, by verbs: of one broker's file of users, and of all brokers'.

Brokers of one machine have one file, and those of several machines have one each.  The verbs may therefore be repeated:
what is as it should be stays.  Passwords are never part of them, only their verifiers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from raybroker.admin.verb_types import UserChange
from raybroker.broker.services.service_administration import ServiceAdministration
from raybroker.hosting.host_port import Row
from raybroker.model.errors import ConfigError
from raybroker.model.listing import Listing
from raybroker.model.settings.settings import ConfigView

if TYPE_CHECKING:
    from raybroker.broker.cluster.cluster_admin import Everywhere

if TYPE_CHECKING:
    from raybroker.security.user_file import UserFile

REPOSITORY: Final = "imq.authentication.basic.user_repository"


class UserVerbs:
    """The verbs about users of one broker."""

    def __init__(self, config: ConfigView, services: ServiceAdministration) -> None:
        self._config = config
        self._services = services
        self._broker = services.broker

    async def list_users(self, verifiers: bool = False) -> Listing:
        users = await asyncio.to_thread(self._file().users)
        return Listing(
            [
                {
                    "broker": self._broker,
                    "user": name,
                    "group": entry.group,
                    "active": entry.active,
                    **({"verifier": entry.verifier} if verifiers else {}),
                }
                for name, entry in sorted(users.items())
            ]
        )

    async def set_user(self, name: str, verifier: str, group: str = "user", active: bool = True) -> UserChange:
        from raybroker.model.definitions.user import user_of
        from raybroker.security.user_file import UserEntry

        made = user_of(name, {"verifier": verifier, "group": group, "active": active})
        await self._changed(self._file().put, name, UserEntry(**made))
        return {"brokers": [self._broker], "down": []}

    async def destroy_user(self, name: str) -> UserChange:
        await self._changed(self._file().drop, name)
        return {"brokers": [self._broker], "down": []}

    def _file(self) -> UserFile:
        if self._config[REPOSITORY] == "ldap":
            raise ConfigError(f"broker {self._broker} has its users in LDAP ({REPOSITORY}=ldap): administer them there")
        file = self._services.users
        if file is None:
            why = self._services.why_none()
            raise ConfigError(f"broker {self._broker} has no connection services, and so no users: {why}")
        return file

    async def _changed(self, change: Callable[..., None], *args: Any) -> None:
        try:
            await asyncio.to_thread(change, *args)
        except ConfigError as error:
            raise ConfigError(f"broker {self._broker}: {error}") from None


class ClusterUsers:
    """The users of all brokers that are up; "down" names the others, and those that were lost meanwhile.

    ``known``: all brokers of the cluster; ``everywhere`` asks those that are up for a verb."""

    def __init__(self, known: Callable[[], list[str]], everywhere: Everywhere) -> None:
        self._known = known
        self._everywhere = everywhere

    async def set_user(self, name: str, verifier: str, group: str = "user", active: bool = True) -> UserChange:
        return await self._all("set_user", {"name": name, "verifier": verifier, "group": group, "active": active})

    async def destroy_user(self, name: str) -> UserChange:
        return await self._all("destroy_user", {"name": name})

    async def _all(self, verb: str, args: Row) -> UserChange:
        done = [broker for broker, _ in await self._everywhere(verb, args)]
        return {"brokers": done, "down": [broker for broker in self._known() if broker not in done]}
