"""A live configuration: some of its properties change while it is in use.

The change of an administrator wins over all layers as long as the configuration has the value that it had then.  A
different value in the configuration is a later decision, and the change is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from raybroker.model.errors import ConfigError
from raybroker.model.settings.setting_memory import check_memory_levels
from raybroker.model.settings.setting_thresholds import check_system_thresholds
from raybroker.model.settings.settings import SETTINGS, ConfigView, Setting, Value, lookup, settings_of

Saved = dict[str, list[Any]]
"""Property → [its changed value, the text of its value in the configuration]."""

LIVE: Final = tuple(setting.name for setting in settings_of("broker") if setting.reload == "live")
"""The properties that can change while a broker runs."""
ORIGIN: Final = "update bkr"
INSTEAD: Final = {
    "imq.cluster.url": "the list of brokers of another file is taken by raybroker reload cls --config FILE, a property"
    " of it by raybroker update bkr -o PROPERTY=VALUE, and all of it when the cluster is started with it"
}
"""Property → what to do while brokers run in place of changing it."""


class LiveConfig:
    """``base`` with the changes of ``saved`` that still hold; ``forgotten`` names those that do not."""

    def __init__(self, base: ConfigView, saved: Saved | None = None) -> None:
        self.base = base
        self.changed: dict[str, Value] = {}
        """The changes in force; the dict is replaced and never modified, so that any thread may read it."""
        self.forgotten: list[str] = []
        for name, (value, instead) in (saved or {}).items():
            try:
                if self._said(name) == instead:
                    self.changed[name] = _live(name).parse(value)
                    continue
            except ConfigError:
                pass  # Another version's property, or its value.
            self.forgotten.append(name)

    def __getitem__(self, name: str) -> Any:
        changed = self.changed
        return changed[name] if name in changed else self.base[name]

    def with_changes(self, properties: Mapping[str, object]) -> dict[str, Value]:
        """The value of ``changed`` with these properties, all or none; a value that the configuration has is no change.

        Raises ConfigError for a property that does not exist, is read at the start only, or does not take the value,
        and for properties that contradict each other.
        """
        changed = dict(self.changed)
        for name, given in properties.items():
            value = _live(name).parse(given)
            changed.pop(name, None)
            if value != self.base[name]:
                changed[name] = value
        check_system_thresholds(lambda name: changed.get(name, self.base[name]))
        check_memory_levels(lambda name: changed.get(name, self.base[name]))
        return changed

    def saved(self, changed: Mapping[str, Value]) -> Saved:
        """The changes in the form that the constructor takes."""
        return {name: [value, self._said(name)] for name, value in changed.items()}

    def replace(self, changed: Mapping[str, Value]) -> None:
        """Put exactly these changes in force."""
        self.changed = dict(changed)

    def explained(self, rows: Iterable[tuple[str, Value, str]]) -> list[tuple[str, Value, str]]:
        """Rows (name, value, origin) of the configuration, with the changes in force."""
        changed = self.changed
        return [(name, changed.get(name, value), ORIGIN if name in changed else origin) for name, value, origin in rows]

    def _said(self, name: str) -> str:
        return _live(name).format(self.base[name])


def live(config: ConfigView) -> LiveConfig:
    """``config`` as a live configuration; a live one is returned as it is."""
    return config if isinstance(config, LiveConfig) else LiveConfig(config)


def _live(name: str) -> Setting:
    if ("broker", name) not in SETTINGS and ("factory", name) in SETTINGS:
        raise ConfigError(f"{name} is an attribute of connection factories; brokers do not have it")
    setting = lookup(name, "broker")
    if name in INSTEAD:
        raise ConfigError(f"{name} is read by the command that starts brokers: {INSTEAD[name]}")
    if setting.reload != "live":
        raise ConfigError(
            f"{name} is read when a broker starts: set it in the configuration and start the broker again; what can"
            f" change while it runs is {', '.join(LIVE)}"
        )
    return setting
