"""Overrides at the start: attributes of connections that whoever starts a program gives it, in place of its own.

They beat what a program sets, what a cluster tells its clients, and what an object that was looked up says, unless that
object is read-only. Java has -Dattribute=value of the virtual machine for them; here they are

* ``RAYBROKER_CLIENT_OVERRIDES="imqAckTimeout=5000 -DimqAddressList=mq://other:7676"``, words as a shell splits them,
* and those that the main program takes from its own command line and passes to ``rb.overrides``, which win.

A broker that they name (imqAddressList, imqBrokerHostName, imqBrokerHostPort) is in the place of the address, and of
the broker, that the program names. They hold for connections that are made afterwards.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from raybroker.config.layers import CLIENT_OVERRIDES, flag_layer, variable
from raybroker.model.errors import ConfigError
from raybroker.model.settings.settings import lookup

ADDRESSES: Final = "imqAddressList"
HOST: Final = "imqBrokerHostName"
PORT: Final = "imqBrokerHostPort"


class _Given:
    """Those of the program, replaced as a whole."""

    values: Mapping[str, str] = {}


def overrides(given: Mapping[str, object] | Iterable[str] | None = None) -> dict[str, str]:
    """Set the overrides of this process, and return all that hold, those of the environment too.

    given  attributes by name, or texts as a command line has them, -Dname=value, or one text with such words; {} takes
           back what was set before, and None changes nothing

        rb.overrides(word for word in sys.argv if word.startswith("-D"))

    Raises ConfigError for an unknown attribute or a value out of bounds.
    """
    if given is not None:
        _Given.values = _checked(_words(given, "") if isinstance(given, str) else given, "")
    return {**_of_environment(), **_Given.values}


def _of_environment() -> dict[str, str]:
    text = variable(CLIENT_OVERRIDES)
    if text is None:
        return {}
    where = f"environment variable {CLIENT_OVERRIDES}: "
    return _checked(_words(text, where), where)


def _words(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{where}{error}") from None


def _checked(given: Mapping[str, object] | Iterable[str], where: str) -> dict[str, str]:
    try:
        settings = [(lookup(one.name, "factory"), one.value) for one in flag_layer(given)]
        return {setting.name: setting.format(setting.parse(value)) for setting, value in settings}
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


def names_a_broker(found: Mapping[str, object]) -> bool:
    """Whether overrides say where to connect."""
    return not found.keys().isdisjoint((ADDRESSES, HOST, PORT))


def in_force(attributes: Mapping[str, object], found: Mapping[str, object]) -> dict[str, object]:
    """The attributes of a connection with overrides in the place of their own."""
    if names_a_broker(found) and ADDRESSES not in found:
        attributes = {name: value for name, value in attributes.items() if name != ADDRESSES}
    return {**attributes, **found}
