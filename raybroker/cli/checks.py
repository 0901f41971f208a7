"""Checks of what a command line says about destinations: what cannot be is a usage error, and no broker is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raybroker.cli.exits import UsageError
from raybroker.model.errors import BrokerError
from raybroker.model.naming.names import check_destination_name, check_destination_type
from raybroker.model.settings.setting import Setting
from raybroker.model.settings.settings import check_attribute_names, lookup, settings_of


def checked_name(option: str, name: str, *, wildcards: bool = False) -> str:
    """The name of a destination; raises UsageError for one that no destination can have."""
    try:
        return check_destination_name(name, allow_reserved=True, allow_wildcards=wildcards)
    except BrokerError as error:
        raise UsageError(f"{option}: {error}") from None


def checked_attributes(given: Mapping[str, str], kind: str) -> dict[str, Any]:
    """Attributes of a destination, as the text they are; raises UsageError for a name or a value that none has.

    Whether they go together, and with what is there, is for the broker to say.
    """
    try:
        for name, value in given.items():
            lookup(name, "destination").parse(value)
        check_attribute_names(given, check_destination_type(kind))
    except BrokerError as error:
        raise UsageError(f"-o: {error}") from None
    return dict(given)


def check_attributes(given: dict[str, Any]) -> None:
    """Check the name, the type and the attributes of a destination that a command has."""
    given["option"] = checked_attributes(given["option"], given["type"])
    checked_name("-n", given["name"])


def check_chosen(verb: str, given: Mapping[str, Any]) -> None:
    """Raises UsageError unless it is said which messages."""
    some = given["selector"] or given["ids"]
    if not some and not given["all"]:
        raise UsageError(f"{verb} msg: say which messages, with -s, --id or --all")
    if some and given["all"]:
        raise UsageError(f"{verb} msg: --all leaves no choice; give it without -s and --id")


def checked_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Properties of a broker, as the text they are; raises UsageError for a name or a value that none has. Whether one
    may change while brokers run is for the broker to say."""
    try:
        for name, value in given.items():
            lookup(name, "broker").parse(value)
    except BrokerError as error:
        raise UsageError(f"-o: {error}") from None
    return dict(given)


def properties_help() -> str:
    """All properties that may change while brokers run, for the help of the command that does it."""
    lines = "\n".join(_line(setting) for setting in settings_of("broker") if setting.reload == "live")
    return f"\b\nProperties, for -o PROPERTY=VALUE; query bkr --explain shows all, also those of the start:\n{lines}"


def _line(setting: Setting) -> str:
    only = f", {setting.only}s only" if setting.only else ""
    default = setting.format(setting.default) or "none"
    return f"  {setting.name} (default {default}; {setting.bounds()}{only})\n      {setting.help}"


def attributes_help() -> str:
    """All attributes of a destination, for the help of the commands that take them."""
    lines = "\n".join(_line(setting) for setting in settings_of("destination"))
    return f"\b\nAttributes, for -o ATTR=VALUE; sizes may be written 10m, times are in milliseconds:\n{lines}"
