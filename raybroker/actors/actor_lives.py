"""The life of an actor, watched by whoever has handed it a message.

A call waits at the actor behind what it does, and Ray answers it at once when the actor's process or node has died: by
its own word, not by a time-out of ours.  The call returns which process it is, so that one that Ray has restarted
between two calls is known to have died as well: what it had in work is lost.
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
        self._process: str | None = None
        self._asked = self._call()

    def _call(self) -> Any:
        def process(actor: object) -> str:  # Here, so that it goes as it is: the actor may not have this package.
            return str(ray.get_runtime_context().get_worker_id())

        # Not tried again by Ray: a process that comes in its place is another one.
        return self._actor.__ray_call__.options(max_task_retries=0).remote(process)

    def ended(self) -> str | None:
        if not ray.wait([self._asked], timeout=0, fetch_local=False)[0]:
            return None
        try:
            process: str = ray.get(self._asked, timeout=1.0)
        except RayActorError as error:
            return f"its actor has died or cannot be reached: {' '.join(str(error).split())[:200]}"
        except RayError as error:
            return f"its actor does not answer: {' '.join(str(error).split())[:200]}"
        if self._process not in (None, process):
            return "its actor has died, and Ray has started it anew"
        self._process, self._asked = process, self._call()
        return None

    def unwatch(self) -> None:
        """The call that waits is of no use to anybody; it ends by itself."""


def life_of(holder: object) -> ActorLife | None:
    """None for what is no actor's handle."""
    return ActorLife(holder) if isinstance(holder, ActorHandle) else None
