"""Templates: named sets of destination attributes, for many destinations at a time.

A destination takes from its template, when it is created, what it is not given itself.  A change of the template
reaches every destination that still has the template's old value; one that says something else keeps it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from raybroker.broker.destinations.destination_registry import Key, Registry
from raybroker.broker.destinations.error_destinations import refuse_circle
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.template import applied, follows, of_type
from raybroker.model.errors import ConfigError, UnknownDefinitionError
from raybroker.model.naming.names import DestinationType, check_template_name
from raybroker.model.settings.setting import Value
from raybroker.model.settings.settings import lookup

Saved = dict[str, dict[str, Value]]
Save = Callable[[Saved], Awaitable[None]]

TEMPLATES_MAX: Final = 1000
"""Templates of one broker: they are one small file that is written whole."""


async def keep_nothing(saved: Saved) -> None:
    """For brokers whose templates end with them."""


class Templates:
    """``saved`` is what there is, ``save`` makes a new state durable before it holds; raises StoreError."""

    def __init__(self, registry: Registry, saved: Saved | None = None, save: Save = keep_nothing) -> None:
        self._registry = registry
        self._save = save
        self._templates: Saved = dict(saved or {})
        self.check: Callable[[Mapping[str, object]], None] = lambda attributes: None
        """Raises ConfigError for attributes that name what there is not."""

    async def create_template(self, name: str, attributes: Row) -> None:
        """Raises ConfigError for a bad name, one that exists, an unknown attribute or a value out of bounds."""
        await self.put(name, self.checked(name, attributes))

    def checked(self, name: str, attributes: Row) -> Row:
        """The attributes of a new template as values; raises as :meth:`create_template`."""
        check_template_name(name)
        if name in self._templates:
            raise ConfigError(f"template {name!r} exists already; update or destroy it")
        if len(self._templates) >= TEMPLATES_MAX:
            raise ConfigError(f"there are {TEMPLATES_MAX} templates, which is the most there can be")
        return dict(self._parsed(attributes))

    async def put(self, name: str, attributes: Row) -> None:
        """Make this the template of that name."""
        await self._replace({**self._templates, name: attributes})

    async def drop(self, name: str) -> None:
        """Nothing happens when there is none."""
        await self._replace({key: value for key, value in self._templates.items() if key != name})

    async def update_template(self, name: str, changes: Row) -> int:
        """Change a template and the destinations that follow it; how many destinations were changed."""
        merged, follow = await self.following(name, changes)
        await self._replace({**self._templates, name: merged})
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
        old = self._named(name)
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
        self.require(name)
        await self.drop(name)

    def require(self, name: str) -> None:
        """Raises ConfigError when there is no such template."""
        self._named(name)

    async def list_templates(self) -> list[Row]:
        """One row a template, by name: name and attributes."""
        return [{"name": name, "attributes": dict(found)} for name, found in sorted(self._templates.items())]

    def applied(self, given: Mapping[str, object], type_: DestinationType) -> dict[str, object]:
        """The attributes of a new destination: those given, and those of the template that is named among them."""
        name = given.get("template", "")
        if not name:
            return dict(given)
        try:
            return applied(self._named(str(name)), given, type_)
        except UnknownDefinitionError as error:
            raise ConfigError(str(error)) from None

    def _named(self, name: str) -> dict[str, Value]:
        found = self._templates.get(name)
        if found is None:
            known = ", ".join(sorted(self._templates)) or "none"
            raise UnknownDefinitionError(f"there is no template {name!r}; there are: {known}")
        return found

    def _parsed(self, attributes: Row) -> dict[str, Value]:
        self.check(attributes)
        return _parsed(attributes)

    async def _replace(self, templates: Saved) -> None:
        await self._save(templates)
        self._templates = templates


def _parsed(attributes: Row) -> dict[str, Value]:
    if "template" in attributes:
        raise ConfigError("a template has no template of its own")
    return {name: lookup(name, "destination").parse(value) for name, value in attributes.items()}
