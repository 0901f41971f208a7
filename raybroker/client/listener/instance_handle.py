"""The handle of an instance of a deployed listener: an actor in Ray, or threads of this process."""

from __future__ import annotations

from typing import Any, Protocol


class InstanceHandle(Protocol):
    """An instance, wherever it runs. Each method raises BrokerError when it cannot answer."""

    @property
    def actor(self) -> Any:
        """What runs it."""
        ...

    def ready(self) -> None: ...

    def stats(self) -> dict[str, Any]: ...

    def leaves(self) -> bool:
        """Whether its node is drained, at once."""
        ...

    def leave(self) -> dict[str, Any]:
        """Begin no more calls; its stats, "stopped" when none runs any more."""
        ...

    def stop(self) -> dict[str, Any]: ...

    def discard(self) -> None:
        """It is not needed any more."""
        ...
