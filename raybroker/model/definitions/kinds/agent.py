"""Forwarding agents as definitions."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar, Final

from raybroker.model.definitions.forwarding import Forwarding, forwarding
from raybroker.model.definitions.kinds.kind import Kind, Planning, Reading, Recorded, checked_table
from raybroker.model.definitions.values import Attributes, changed, differing
from raybroker.model.naming.names import check_template_name


class AgentKind(Kind):
    name = "agent"
    section = "agents"
    verbs: ClassVar = {"create": "create_forwarding", "destroy": "destroy_forwarding"}
    said: ClassVar = {one.name: one.default for one in fields(Forwarding)}
    path = "/forwardings"
    recorded = Recorded("forwardings", "forwarding agent", "create_forwarding", "destroy_forwarding")

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:
        check_template_name(name)
        return differing(forwarding(checked_table(given)).as_dict(), self.said)

    def plan(self, planning: Planning) -> None:
        """One that differs is destroyed and made again."""
        table = planning.now.agents
        for name, wanted in planning.wanted.agents.items():
            there = table.get(name)
            found = changed(there or {}, wanted)
            if there is not None and there != wanted:
                planning.step("destroy", self, name, found)
            elif not planning.place.agents:
                planning.block("create", self.name, name, found, "agents are of clusters, and this broker is alone")
                continue
            if there != wanted:
                rest = {key: value for key, value in wanted.items() if key not in ("queue", "to")}
                planning.step("create", self, name, found, queue=wanted["queue"], to=wanted["to"], attributes=rest)
                table[name] = wanted


AGENT: Final = AgentKind()
