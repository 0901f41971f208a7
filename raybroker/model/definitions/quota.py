"""Quotas: named limits that destinations refer to by their attribute ``quota``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.model.errors import ConfigError
from raybroker.model.naming.nearest import nearest
from raybroker.model.settings.setting import INT_MAX, Setting, Value
from raybroker.model.sizes import SIZE_BYTES_MAX, UNLIMITED

Quota = dict[str, Value]
"""The attributes of a quota, all of them, by name."""

LMAX: Final = 2**63 - 1
"""WebLogic's default of the two maxima; it means no limit, as -1 does."""
ATTRIBUTES: Final[Mapping[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting(
            "BytesMaximum",
            "size",
            UNLIMITED,
            "destination",
            "Most bytes of message bodies; 0: only messages without a body. -1 and LMAX mean no limit.",
            unit="bytes",
            low=0,
            high=SIZE_BYTES_MAX,
            unlimited=True,
        ),
        Setting(
            "MessagesMaximum",
            "int",
            UNLIMITED,
            "destination",
            "Most messages; 0: none at all. -1 and LMAX mean no limit.",
            unit="messages",
            low=0,
            high=INT_MAX,
            unlimited=True,
        ),
        Setting(
            "Policy",
            "enum",
            "FIFO",
            "destination",
            "Who goes first of the senders that wait for room. FIFO: the one that came first, and who would fit "
            "waits behind it. Preemptive: whoever fits.",
            choices=("FIFO", "Preemptive"),
        ),
        Setting(
            "Shared",
            "bool",
            True,
            "destination",
            "true: the destinations that refer to the quota have its maxima together, on each broker; false: each "
            "of them has them alone.",
            reload="fixed",
        ),
    )
}
DEFAULTS: Final = {name: setting.default for name, setting in ATTRIBUTES.items()}
_THRESHOLDS: Final = (("messagesHigh", "MessagesMaximum"), ("bytesHigh", "BytesMaximum"))


def quota_of(given: Mapping[str, object], before: Mapping[str, object] | None = None) -> Quota:
    """The attributes of a quota: those given, and the others as they were ``before`` or by default.

    Raises ConfigError for an unknown attribute, a value out of bounds, and a change of Shared.
    """
    found: Quota = dict(DEFAULTS)
    for name, value in {**(before or {}), **given}.items():
        setting = ATTRIBUTES.get(name)
        if setting is None:
            near = nearest(name, ATTRIBUTES, least=0.0)
            raise ConfigError(f"{name!r} is not an attribute of quotas; the nearest is {near!r}")
        unlimited = setting.unlimited and value in (LMAX, str(LMAX), "LMAX")
        parsed = UNLIMITED if unlimited else setting.parse(value)
        if before is not None and setting.reload == "fixed" and parsed != before[name]:
            raise ConfigError(f"{name} is fixed when a quota is created: destroy and create it to change it")
        found[name] = parsed
    return found


def refuse_contradiction(destination: str, attributes: Mapping[str, object], name: str, quota: Quota) -> None:
    """Raises ConfigError when a threshold of the destination would never be reached within the quota.

    ``attributes``: all of the destination, as values.
    """
    for threshold, maximum in _THRESHOLDS:
        high, most = int(str(attributes[threshold])), int(str(quota[maximum]))
        if 0 <= most < high:
            raise ConfigError(
                f"{threshold} = {high} of {destination} would never be reached: {maximum} of quota {name!r} is {most};"
                " lower one or raise the other"
            )
