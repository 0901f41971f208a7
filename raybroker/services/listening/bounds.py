"""Bounds of a listener on its clients, whatever they speak; the settings are in
``model/settings/setting_listeners.py``."""

from __future__ import annotations

from typing import Final, NamedTuple

from raybroker.model.settings.setting_listeners import ARRIVING_MAX, ARRIVING_OF_ADDRESS_MAX, KEEPALIVE_S, UNREAD_S
from raybroker.model.settings.settings import ConfigView


class Bounds(NamedTuple):
    """``arriving``: connections that have not logged in; ``arriving_of_address``: of them those from one address;
    ``unread_s``: how long a client may take nothing of what it is sent, -1: for ever; ``keepalive_s``: how long
    nothing comes before the system asks whether its machine is there."""

    arriving: int = ARRIVING_MAX
    arriving_of_address: int = ARRIVING_OF_ADDRESS_MAX
    unread_s: float = UNREAD_S
    keepalive_s: int = KEEPALIVE_S

    @classmethod
    def from_config(cls, config: ConfigView) -> Bounds:
        return cls(
            config["raybroker.service.arriving_max"],
            config["raybroker.service.address_arriving_max"],
            config["raybroker.service.unread_timeout"],
            config["raybroker.service.keepalive"],
        )


AS_SET: Final = Bounds()
"""What holds where nobody has configured anything."""
