"""Lives that a delivery may be tied to: of a process of this machine, or of an actor of Ray.

A life is looked at, and never waited for: :meth:`Life.ended` says why it is over, or None.
"""

from __future__ import annotations

import os
import select
from typing import Any, Protocol

from raybroker.client.cluster.ray_seam import actor_life
from raybroker.model.argument import shown
from raybroker.model.errors import ConfigError


class Life(Protocol):
    """The life of a process, which is here, or of an actor, which is in ``raybroker.actors``."""

    def ended(self) -> str | None:
        """Why it is over, None while it goes on. Called on the IO loop: it must not wait."""
        ...

    def unwatch(self) -> None:
        """Nobody asks any more."""
        ...


class ProcessLife:
    """A process of this machine, by its number. Raises ConfigError when there is none now.

    Its file descriptor is held, so that another process that gets the same number later is not taken for it.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._descriptor = os.pidfd_open(pid)
        except AttributeError:
            raise ConfigError("lease_to() of a process needs Linux (pidfd); give it an actor, or extend()") from None
        except OSError as error:
            raise ConfigError(f"lease_to(): there is no process {pid} on this machine: {error.strerror}") from None
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._pid = pid

    def ended(self) -> str | None:
        return f"process {self._pid} has ended" if self._poll.poll(0) else None

    def unwatch(self) -> None:
        os.close(self._descriptor)


def life_of(holder: Any) -> Life:
    """The life of a process (a number, or what has a ``pid``) or an actor's handle; raises ConfigError for anything
    else, and when it has ended."""
    pid = getattr(holder, "pid", holder)
    if isinstance(pid, int) and not isinstance(pid, bool):
        if pid <= 0:
            raise ConfigError(f"lease_to({pid}); the number of a process is positive")
        return ProcessLife(pid)
    life = actor_life(holder)
    if life is None:
        raise ConfigError(f"lease_to({shown(holder)}); it is the handle of an actor, a process, or its number")
    found: Life = life
    return found
