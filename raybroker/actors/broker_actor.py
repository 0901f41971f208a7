"""The actor of a broker as Ray knows it.

Ray has whoever finds an actor import its class, and so has each client: here is the list of its methods alone, and what
carries them out is imported in the process of the actor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from raybroker.actors.broker_spec import BrokerSpec

METHODS: Final = (
    "stand_by",
    "become",
    "locate",
    "placed",
    "brokers",
    "brokers_changed",
    "members",
    "routes",
    "renew_routes",
    "release_routes",
    "receive",
    "peer",
    "create_temporary",
    "destroy_temporary",
    "subscribe",
    "identify",
    "unsubscribe",
    "matching",
    "changed",
    "branch_states",
    "settings",
    "admin",
    "carry_out",
    "plan",
    "explain",
    "forget",
    "lease",
    "forward",
    "ready",
    "how_far",
    "object_keeper",
    "host_actor",
    "hold_body",
    "find_body",
    "pids",
    "stop",
)
"""What may be asked of the actor: the methods of BrokerShell of these names, with their arguments by position."""


class BrokerActor:
    """See BrokerShell."""

    def __init__(self, spec: BrokerSpec, stands_by: str = "") -> None:
        from raybroker.system.memory import collect_seldom

        collect_seldom()  # Before all that a broker imports, through which the collector would go again and again.
        from raybroker.actors.broker import BrokerShell

        self._shell = BrokerShell(spec, stands_by, type(self))


def _passed_on(name: str) -> Callable[..., Awaitable[Any]]:
    async def passed_on(self: BrokerActor, *args: Any) -> Any:
        return await getattr(self._shell, name)(*args)

    passed_on.__name__, passed_on.__qualname__ = name, f"{BrokerActor.__qualname__}.{name}"
    return passed_on


for _name in METHODS:
    setattr(BrokerActor, _name, _passed_on(_name))
