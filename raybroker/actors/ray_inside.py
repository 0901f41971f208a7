"""Everything that is used of Ray beside its documentation, in one place.

``tests/unit/actors/test_ray_inside.py`` fails when Ray changes it, and ``pyproject.toml`` bounds the release.
What only makes output quieter or errors better is done without where Ray no longer has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ray
from ray._private import services
from ray.experimental import internal_kv

ANSWER_S: Final = 5.0
"""How long a Ray that is starting may take to say which nodes it has."""


def address_of_environment() -> str:
    """Return the address of the Ray that ``ray.init(address="auto")`` would join; raises ConnectionError when there is
    none."""
    return str(services.get_ray_address_from_environment("auto", None))


def read_environment_again() -> None:
    """Ray has read how it is to be let in when it was imported."""
    config = getattr(ray._raylet, "Config", None)
    if config is not None:
        config.initialize("")


def knock(where: str) -> None:
    """Raises RayError, and at once where the token is wrong or missing: by ``ray.init`` Ray would ask twenty times, a
    second apart, and print a line each time."""
    client = getattr(ray._raylet, "GcsClient", None)
    if client is not None:
        client(address=where)


def has_node(where: str) -> bool:
    """Return whether the Ray at ``where`` has a node by now, without which ``ray.init`` waits: it looks again after one
    second or two, however soon there is one. Raises RayError as :func:`knock` does."""
    client = getattr(ray._raylet, "GcsClient", None)
    nodes = getattr(client(address=where), "get_all_node_info", None) if client is not None else None
    return nodes is None or bool(nodes(timeout=ANSWER_S))


def narrow_output(shown: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Have the program show what ``shown`` makes of what actors print and Ray says; None: nothing.

    Ray has no option for some lines of it: ``log_to_driver`` is for all of them.
    """
    worker: Any = getattr(ray._private, "worker", None)
    show = getattr(worker, "print_to_stdstream", None)
    if show is None:
        return

    def narrowed(data: dict[str, Any], *args: Any, **options: Any) -> Any:
        kept = shown(data)
        return None if kept is None else show(kept, *args, **options)

    worker.print_to_stdstream = narrowed


def keep_quiet() -> None:
    """Keep what Ray tells drivers of dying workers off this process's standard output, for programs that own it."""
    worker: Any = getattr(ray._private, "worker", None)
    if hasattr(worker, "_worker_logs_enabled"):
        worker._worker_logs_enabled = False


def remember(key: str, value: str, namespace: str) -> None:
    """Keep a text for an actor that may be started again; it goes with this Ray."""
    internal_kv._internal_kv_put(key.encode(), value.encode(), overwrite=True, namespace=namespace.encode())


def remembered(key: str, namespace: str) -> str | None:
    """What :func:`remember` has kept."""
    found = internal_kv._internal_kv_get(key.encode(), namespace=namespace.encode())
    return None if found is None else bytes(found).decode()


def remembered_keys(prefix: str, namespace: str) -> list[str]:
    """The keys of what :func:`remember` keeps that begin so."""
    found = internal_kv._internal_kv_list(prefix.encode(), namespace=namespace.encode())
    return [bytes(key).decode() for key in found]


def forget(key: str, namespace: str) -> None:
    """Keep it no longer."""
    internal_kv._internal_kv_del(key.encode(), namespace=namespace.encode())
