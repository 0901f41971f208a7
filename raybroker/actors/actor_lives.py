"""The life of an actor, watched by whoever has handed it a message.

A call of ``__ray_ready__`` waits at the actor behind what it does, and Ray answers it at once when the actor's process
or node has died: by its own word, not by a time-out of ours.  One that is restarted has died as well, since what it had
in work is lost.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayError


class ActorLife:
    """See :class:`raybroker.client.consumer.acknowledging.lives.Life`."""

    def __init__(self, actor: ActorHandle[Any]) -> None:
        self._actor = actor
        self._asked = self._ready_call()

    def _ready_call(self) -> Any:
        # Not tried again by Ray: a process that comes in its place is another one.
        return self._actor.__ray_ready__.options(max_task_retries=0).remote()

    def ended(self) -> str | None:
        if not ray.wait([self._asked], timeout=0, fetch_local=False)[0]:
            return None
        try:
            ray.get(self._asked, timeout=1.0)
        except RayActorError as error:
            return f"its actor has died or cannot be reached: {' '.join(str(error).split())[:200]}"
        except RayError as error:
            return f"its actor does not answer: {' '.join(str(error).split())[:200]}"
        self._asked = self._ready_call()
        return None

    def unwatch(self) -> None:
        """The call that waits is of no use to anybody; it ends by itself."""


def life_of(holder: object) -> ActorLife | None:
    """None for what is no actor's handle."""
    return ActorLife(holder) if isinstance(holder, ActorHandle) else None
