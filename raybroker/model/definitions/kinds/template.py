"""Templates as definitions."""

from __future__ import annotations

from typing import Any, Final

from raybroker.model.definitions.kinds.kind import Kind, Planning, Reading, Recorded, checked_table, itself, verbs_of
from raybroker.model.definitions.template import follows, of_type
from raybroker.model.definitions.values import TYPES, Attributes, changed, differing, new_values
from raybroker.model.errors import ConfigError
from raybroker.model.naming.names import DestinationType, check_template_name
from raybroker.model.settings.settings import parsed_attributes


class TemplateKind(Kind):
    name = "template"
    section = "templates"
    verbs = verbs_of("template")
    recorded = Recorded("templates", "template", "set_template", "drop_template", "set_template", naming=itself)
    path = "/templates"
    lists = "list_templates"

    def entry(self, name: str, given: Any, reading: Reading) -> Attributes:
        check_template_name(name)
        if "template" in checked_table(given):
            raise ConfigError("a template has no template of its own")
        return differing(parsed_attributes(given), reading.defaults.template)

    def plan(self, planning: Planning) -> None:
        defaults, table = planning.place.defaults.template, planning.now.templates
        for name, wanted in planning.wanted.templates.items():
            planning.require_quota(wanted, f"template {name!r}")
            if name not in table:
                planning.step("create", self, name, changed({}, wanted), attributes=wanted)
            elif found := changed(table[name], wanted, defaults):
                changes = new_values(found)
                planning.step("update", self, name, found, changes=changes)
                for type in TYPES:  # noqa: A001 - as everywhere
                    _follow(planning, type, name, table[name], changes)
            table[name] = wanted


def _follow(planning: Planning, type: DestinationType, name: str, old: Attributes, changes: Attributes) -> None:
    table = planning.now.of_type(type)
    for destination, own in table.items():
        base = planning.place.defaults.destination(type, destination)
        now = {**base, **own}
        if now.get("template") == name:
            taken = {k: value for k, value in of_type(changes, type).items() if follows(now, old, k, value)}
            table[destination] = differing({**now, **taken}, base)


TEMPLATE: Final = TemplateKind()
