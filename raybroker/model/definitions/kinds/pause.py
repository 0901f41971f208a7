"""Pauses of destinations as definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from raybroker.model.definitions.kinds.kind import ListedKind, Planning, Reading, Recorded
from raybroker.model.definitions.pauses import WORK, at_startup
from raybroker.model.definitions.values import Attributes, Definitions, Pause
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import check_destination_name

_FIELDS: Final = ("type", "name", "which")


class PauseKind(ListedKind):
    """The pauses that hold until an administrator resumes the destinations; their keys are Pause, and their entries are
    empty."""

    name = "pause"
    section = "pauses"
    verbs: ClassVar = {"create": "pause_destination", "destroy": "resume_destination"}
    recorded = Recorded("pauses", "pause", "pause_destination", "resume_destination", parts=True, later=True)

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:
        return {}

    def read_entry(self, given: Mapping[str, Any], reading: Reading) -> tuple[Pause, Attributes]:
        if odd := sorted(set(given) ^ set(_FIELDS)):
            raise ConfigError(f"{odd[0]!r:.80}: a pause has type, name and which, and nothing else")
        if given["type"] not in ("queue", "topic"):
            raise ConfigError(f"type = {str(given['type'])[:80]!r}; it is queue or topic")
        if given["which"] not in WORK:
            raise ConfigError(f"which = {str(given['which'])[:80]!r}; it is one of {', '.join(WORK)}")
        if not isinstance(given["name"], str):
            raise ConfigError(f"name = {str(given['name'])[:80]!r}; it is a text")
        return (given["type"], check_destination_name(given["name"]), given["which"]), {}

    def twice(self, key: Any) -> str:
        return f"{key[0]} {key[1]!r} is there twice with {key[2]}"

    def plain(self, table: Mapping[Any, Any]) -> Any:
        return [self.args(key) for key in sorted(table)]

    def of_record(self, key: tuple[str, ...], row: Mapping[str, Any], reading: Reading) -> Iterator[tuple[Any, Any]]:
        for which, until_ms in row.items():
            if not until_ms:
                yield (*key, which), {}

    def is_defined(self, definitions: Definitions, key: Any) -> bool:
        """Whether it is of a destination that is a definition, and not of its attributes: what was created
        automatically goes by itself, and its pauses with it."""
        attributes = definitions.of_type(key[0]).get(key[1])
        return attributes is not None and not attributes.get(at_startup(WORK[key[2]]))

    def shown(self, key: Any) -> str:
        return " ".join(key)

    def args(self, key: Any) -> Attributes:
        return dict(zip(_FIELDS, key, strict=True))

    def plan(self, planning: Planning) -> None:
        for key in planning.wanted.pauses:
            type, name, _ = key  # noqa: A001 - as everywhere
            there = name in planning.now.of_type(type)
            if planning.prune and there and name not in planning.wanted.of_type(type):
                raise ConfigError(
                    f"pause of {type} {name!r}: the {type} is not among these definitions, and would be destroyed"
                )
            if not there and (type, name) not in planning.place.automatic:
                why = f"there is no {type} {name!r}, here or in what is made"
                planning.block("create", self.name, self.shown(key), {}, why)
            elif key not in planning.now.pauses:
                planning.step("create", self, key, {})
                planning.now.pauses[key] = {}

    def plan_end(self, planning: Planning, key: Any) -> None:
        """The pauses of a destination that goes end with it."""
        if key[1] in planning.wanted.of_type(key[0]):
            super().plan_end(planning, key)
        else:
            del planning.now.pauses[key]


PAUSE: Final = PauseKind()
