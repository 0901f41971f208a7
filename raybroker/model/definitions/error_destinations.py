"""The way of dead messages from error destination to error destination, which must not lead back."""

from __future__ import annotations

from raybroker.model.errors import ConfigError


def go_on(way: list[str], queue: str) -> None:
    """Put the next queue of the way at its end; raises ConfigError when it is there already.

    way  a queue, its error destination, the error destination of that, and so on
    """
    back = queue in way
    way.append(queue)
    if back:
        raise ConfigError(
            f"errorDestination of queue {way[0]!r}: dead messages would go round in a circle, {' to '.join(way)}; name"
            " a queue that does not lead back"
        )
