"""Properties by name: looking one up, and the attributes of a destination as one value.

The rows themselves are in ``setting_table.py``; what a row can do is ``setting.py``.  Where the values of a running
broker come from (files, environment, flags) is left to ``raybroker.config``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Protocol

from raybroker.model.errors import ConfigError
from raybroker.model.setting import INT_MAX, Kind, PortRange, Reload, Scope, Setting, Value
from raybroker.model.setting_table import ALL, LATER
from raybroker.model.sizes import UNLIMITED

__all__ = [
    "INT_MAX", "Kind", "PortRange", "Reload", "Scope", "Setting", "Value", "SETTINGS", "ConfigView",
    "DestinationAttributes", "lookup", "settings_of", "destination_attributes", "updated_attributes", "auto_created",
]

SETTINGS: Final[Mapping[tuple[Scope, str], Setting]] = {(setting.scope, setting.name): setting for setting in ALL}
_SCOPE_WORDS: Final[dict[Scope, str]] = {
    "broker": "a broker property",
    "destination": "a destination attribute",
    "factory": "a connection factory attribute",
}


def settings_of(scope: Scope) -> tuple[Setting, ...]:
    """All settings of one scope, in the order of the table."""
    return tuple(setting for setting in ALL if setting.scope == scope)


def lookup(name: str, scope: Scope) -> Setting:
    """The setting of that name; names are case sensitive, as in the seeds.

    Raises ConfigError that names the nearest valid name of the scope, or the scope where the name does exist.
    """
    found = SETTINGS.get((scope, name))
    if found is not None:
        return found
    raise ConfigError(f"{name!r} is not {_SCOPE_WORDS[scope]}{_unknown_hint(name, scope)}")


def _unknown_hint(name: str, scope: Scope) -> str:
    for other, words in _SCOPE_WORDS.items():
        if (other, name) in SETTINGS:
            return f": it is {words}"
    if name in LATER:
        return f" of this version: it belongs to feature {LATER[name]}, which is not built yet"
    valid = {setting.name.lower(): setting.name for setting in settings_of(scope)}
    near = difflib.get_close_matches(name.lower(), valid, n=1, cutoff=0.0)
    return f"; the nearest is {valid[near[0]]!r}"


class ConfigView(Protocol):
    """What this module needs of a configuration: a typed value by property name."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class DestinationAttributes:
    """The attributes of one destination under the seeds' names; -1 means no limit (D-06 … D-20, F-02).

    Built by :func:`destination_attributes` and :func:`auto_created`, which check names and bounds.
    """

    maxNumMsgs: int = UNLIMITED
    maxTotalMsgBytes: int = UNLIMITED
    maxBytesPerMsg: int = UNLIMITED
    limitBehavior: str = "REJECT_NEWEST"
    maxNumProducers: int = 100
    maxNumActiveConsumers: int = UNLIMITED
    maxNumBackupConsumers: int = 0
    consumerFlowLimit: int = 1000
    isLocalOnly: bool = False
    localDeliveryPreferred: bool = False
    hosting: str = "dedicated"

    def as_dict(self) -> dict[str, Value]:
        """Name → typed value, in the order of the table; :func:`destination_attributes` takes it back."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def consumer_flow_limit(self) -> int | None:
        """Messages a consumer may be sent in one batch; None: no limit, written -1 or 0 (F-02)."""
        return self.consumerFlowLimit if self.consumerFlowLimit > 0 else None


def destination_attributes(
    overrides: Mapping[str, object] | None = None, config: ConfigView | None = None
) -> DestinationAttributes:
    """Attributes of a destination that an administrator creates (D-03): the defaults with ``overrides``.

    ``config`` supplies ``raybroker.hosting.default``.
    Raises ConfigError for an unknown attribute and for a value out of bounds.
    """
    base = DestinationAttributes()
    if config is not None:
        base = replace(base, hosting=config["raybroker.hosting.default"])
    return _overridden(base, overrides or {})


def updated_attributes(current: DestinationAttributes, changes: Mapping[str, object]) -> DestinationAttributes:
    """``current`` with ``changes``, all of them or none (A-35).

    Raises ConfigError for an unknown attribute, a value out of bounds, or an attribute that is fixed at creation.
    """
    changed = _overridden(current, changes)
    for name in changes:
        if lookup(name, "destination").reload == "fixed" and getattr(changed, name) != getattr(current, name):
            raise ConfigError(f"{name} is fixed when a destination is created: destroy and create it to change it")
    return changed


def auto_created(config: ConfigView) -> DestinationAttributes:
    """Attributes of a queue that is created because somebody opened it (D-21)."""
    shared = "imq.autocreate.destination."
    own = "imq.autocreate.queue."
    return DestinationAttributes(
        maxNumMsgs=config[shared + "maxNumMsgs"],
        maxTotalMsgBytes=config[shared + "maxTotalMsgBytes"],
        maxBytesPerMsg=config[shared + "maxBytesPerMsg"],
        limitBehavior=config[shared + "limitBehavior"],
        maxNumProducers=config[shared + "maxNumProducers"],
        isLocalOnly=config[shared + "isLocalOnly"],
        consumerFlowLimit=config[own + "consumerFlowLimit"],
        hosting=config["raybroker.hosting.autocreated"],
        maxNumActiveConsumers=config[own + "maxNumActiveConsumers"],
        maxNumBackupConsumers=config[own + "maxNumBackupConsumers"],
        localDeliveryPreferred=config[own + "localDeliveryPreferred"],
    )


def _overridden(base: DestinationAttributes, overrides: Mapping[str, object]) -> DestinationAttributes:
    parsed: dict[str, Any] = {name: lookup(name, "destination").parse(value) for name, value in overrides.items()}
    return replace(base, **parsed)
