"""Creation of what may exist already (``if_exists``): refuse, keep, or update it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from raybroker.model.errors import ConfigError, InvalidDestinationError

IF_EXISTS: Final = ("error", "keep", "update")


async def create_or(
    if_exists: str,
    *,
    create: Callable[[], Awaitable[None]],
    exists: Callable[[], bool],
    update: Callable[[], Awaitable[None]],
) -> str:
    """ "created", "kept" or "updated".

    ``create`` raises InvalidDestinationError when it is there, also when somebody else was faster; with "error" that is
    the answer. Raises ConfigError for another ``if_exists``.
    """
    if if_exists not in IF_EXISTS:
        raise ConfigError(f"if_exists={if_exists!r} is unknown; choose one of {', '.join(IF_EXISTS)}")
    try:
        await create()
        return "created"
    except InvalidDestinationError:
        if if_exists == "error" or not exists():
            raise
    if if_exists == "keep":
        return "kept"
    await update()
    return "updated"
