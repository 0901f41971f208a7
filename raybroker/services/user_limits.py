"""Limits for each user: how much he may have of what he makes by way of a broker's services.

Counted is what is still there of what he has made since the broker started: destinations by using them, temporary ones,
durable subscriptions. Who is at a limit is looked at again before he is refused, since what he made may be gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from raybroker.model.errors import ResourceAllocationError
from raybroker.model.settings import ConfigView

DESTINATIONS: Final = "raybroker.service.user_destinations_max"
TEMPORARY: Final = "raybroker.service.user_temporary_max"
SUBSCRIPTIONS: Final = "raybroker.service.user_subscriptions_max"
CONSUMERS: Final = "raybroker.service.user_consumers_max"
WHAT: Final = {
    DESTINATIONS: "destinations", TEMPORARY: "temporary destinations", SUBSCRIPTIONS: "durable subscriptions",
    CONSUMERS: "consumers",
}  # fmt: skip
Key = tuple[str, str]
There = Callable[[Iterable[Key]], Awaitable[set[Key]]]
"""Those of the keys that are still there."""
R = TypeVar("R")


class UserLimits:
    """Of one broker; limits are those of the configuration."""

    def __init__(self, config: ConfigView) -> None:
        self._config = config
        self._made: dict[tuple[str, str], set[Key]] = {}
        """(property, user) → what he has made."""

    async def making(
        self, limit: str, user: str, key: Key, make: Callable[[], Awaitable[R]], there: There,
        name_of: Callable[[R], Key] = lambda answer: ("", ""),
    ) -> R:  # fmt: skip
        """Make one more, which counts from now on unless it fails; raises ResourceAllocationError at the limit.

        ``key``: what it is, ("", "") for one that gets its name as it is made (``name_of``).
        """
        made = self._made.setdefault((limit, user), set())
        most = self._config[limit]
        if key not in made and 0 <= most <= len(made):
            made &= await there(tuple(made))
            if key not in made and most <= len(made):
                raise exceeded(limit, user, len(made), most)
        new = key not in made
        made.add(key)
        try:
            answer = await make()
        except BaseException:
            if new:
                made.discard(key)
            raise
        if not any(key):
            made.discard(key)
            made.add(name_of(answer))
        return answer


def exceeded(limit: str, user: str, count: int, most: int) -> ResourceAllocationError:
    """The refusal of one more."""
    return ResourceAllocationError(
        f"user {user!r:.140} has {count} {WHAT[limit]} and may have {most} ({limit}); end some, or raise it"
    )
