"""Templates: named sets of destination attributes, for many destinations at a time.

A destination takes from its template, when it is created, what it is not given itself.  A change of the template
reaches every destination that still has the template's old value; one that says something else keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from raybroker.broker.definitions.named import NamedDefinitions, Save, Saved, keep_nothing
from raybroker.broker.destinations.destination_registry import Key, Registry
from raybroker.broker.destinations.error_destinations import refuse_circle
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.template import applied, follows, of_type
from raybroker.model.errors import ConfigError, UnknownDefinitionError
from raybroker.model.naming.names import DestinationType, check_template_name
from raybroker.model.settings.setting import Value
from raybroker.model.settings.settings import parsed_attributes


class Templates(NamedDefinitions):
    """The templates of one broker, and the destinations in ``registry`` that follow them; ``check`` raises ConfigError
    for attributes that name what there is not."""

    word = "template"
    words = "templates"
    most = 1000

    def __init__(
        self,
        registry: Registry,
        saved: Saved | None = None,
        save: Save = keep_nothing,
        check: Callable[[Mapping[str, object]], None] = lambda attributes: None,
    ) -> None:
        super().__init__(saved, save)
        self._registry = registry
        self._check = check

    async def create_template(self, name: str, attributes: Row) -> None:
        """Raises ConfigError for a bad name, one that exists, an unknown attribute or a value out of bounds."""
        await self.put(name, self.checked(name, attributes))

    def checked(self, name: str, attributes: Row) -> Row:
        """The attributes of a new template as values; raises as :meth:`create_template`."""
        check_template_name(name)
        self.refuse_new(name)
        return dict(self._parsed(attributes))

    async def update_template(self, name: str, changes: Row) -> int:
        """Change a template and the destinations that follow it; how many destinations were changed."""
        merged, follow = await self.following(name, changes)
        await self.put(name, merged)
        changed = 0
        for key, followed in follow:
            if (host := self._registry.where.get(key)) is not None:  # Else it was destroyed meanwhile.
                await host.destinations.update(*key, followed)
                changed += 1
        return changed

    async def following(self, name: str, changes: Row) -> tuple[Row, list[tuple[Key, Row]]]:
        """What a template becomes by ``changes``, and what of it each destination that follows it takes.

        Raises ConfigError for an error destination that would lead back to one of them.
        """
        old = self.fields(name)
        parsed = self._parsed(changes)
        found: list[tuple[Key, Row]] = []
        for kind, destination in self._registry.keys(None):
            host = self._registry.where.get((kind, destination))
            if host is None:
                continue  # It was destroyed while others were asked.
            now = (await host.destinations.query(kind, destination))["attributes"]
            if now.get("template") != name:
                continue
            followed = {key: value for key, value in of_type(parsed, kind).items() if follows(now, old, key, value)}
            if followed:
                await refuse_circle(self._registry.where, (kind, destination), followed.get("errorDestination"))
                found.append(((kind, destination), followed))
        return {**old, **parsed}, found

    async def destroy_template(self, name: str) -> None:
        """Destinations keep what they took from it. Raises ConfigError when there is none."""
        self.fields(name)
        await self.drop(name)

    async def list_templates(self) -> list[Row]:
        """One row a template, by name: name and attributes."""
        return self.definition_rows()

    def applied(self, given: Mapping[str, object], type_: DestinationType) -> dict[str, object]:
        """The attributes of a new destination: those given, and those of the template that is named among them."""
        name = given.get("template", "")
        if not name:
            return dict(given)
        try:
            return applied(self.fields(str(name)), given, type_)
        except UnknownDefinitionError as error:
            raise ConfigError(str(error)) from None

    def _parsed(self, attributes: Row) -> dict[str, Value]:
        self._check(attributes)
        if "template" in attributes:
            raise ConfigError("a template has no template of its own")
        return parsed_attributes(attributes)
