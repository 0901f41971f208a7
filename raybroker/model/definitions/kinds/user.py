"""Users of the connection services as definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from raybroker.model.definitions.kinds.kind import DOWN, Kind, Planning, Reading, checked_table
from raybroker.model.definitions.user import ANONYMOUS, DEFAULTS, user_of
from raybroker.model.definitions.values import Attributes, Changes, changed
from raybroker.model.errors import ConfigError

HIDDEN: Final = "(hidden)"
HIDDEN_TOO: Final = "(another, hidden)"


class UserKind(Kind):
    """The users, only where they are asked for; a user that brokers have differently has no fields in what there is."""

    name = "user"
    section = "users"
    verbs: ClassVar = {"create": "set_user", "update": "set_user", "destroy": "destroy_user"}
    said = DEFAULTS

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:
        return user_of(name, checked_table(given))

    def read(self, given: Any, reading: Reading) -> dict[Any, Any]:
        users = super().read(given, reading)
        found = sorted(name for name, user in users.items() if user["group"] == ANONYMOUS)
        if len(found) > 1:
            raise ConfigError(f"users, {found[1]}: group {ANONYMOUS} holds one user, and has {found[0]!r}")
        return users

    def compared(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
        """Verifiers are not shown, and only that there is another one."""
        found = changed(before, after)
        if "verifier" in found:
            old, new = found["verifier"]
            found["verifier"] = (old and HIDDEN, new and (HIDDEN_TOO if old else HIDDEN))
        return found

    def plan(self, planning: Planning) -> None:
        if not planning.place.users:
            return
        table = planning.now.users
        for name, wanted in planning.wanted.users.items():
            there = table.get(name)
            if there == wanted:
                continue
            action, found = "create" if there is None else "update", self.compared(there or {}, wanted)
            if there and there["group"] != wanted["group"]:
                why = f"the group of a user, {there['group']}, stays as it was made: delete the user and import again"
                planning.block(action, self.name, name, found, why)
                continue
            if wanted["group"] == ANONYMOUS and not self._make_way(planning, name, found):
                continue
            planning.step(action, self, name, found, **wanted)
            table[name] = wanted
        if planning.wanted.users or planning.prune:
            for broker in planning.place.down:
                planning.block("update", "users", broker, {}, f"{DOWN}, and its users cannot be compared")

    def _make_way(self, planning: Planning, name: str, found: Changes) -> bool:
        """Whether the group of the anonymous user is free."""
        table = planning.now.users
        other = next((one for one, row in table.items() if row.get("group") == ANONYMOUS and one != name), None)
        if other is not None and (not planning.prune or other in planning.wanted.users):
            why = f"group {ANONYMOUS} holds one user, and has {other!r}"
            planning.block("create", self.name, name, found, why)
            return False
        if other is not None:
            self.plan_end(planning, other)
        return True

    def unwanted(self, planning: Planning) -> list[Any]:
        return super().unwanted(planning) if planning.place.users else []


USER: Final = UserKind()
