"""raybroker: the message broker that lives inside a Ray cluster.

    import raybroker as rb

    rb.start()                                    # brokers as actors of the running Ray, or of a local one
    with rb.connect() as conn:
        session = conn.session()
        session.producer("orders").send({"id": 1})
        print(session.receive("orders", timeout=5).body)

``rb.loopback()`` is the same without Ray, for tests.  ``raybroker.aio`` has the handles as coroutines.
"""

from typing import TYPE_CHECKING, Any

from raybroker import aio, errors
from raybroker.client.connection.factory import ConnectionFactory, connect, connect_xa
from raybroker.client.listener.deployment import deploy
from raybroker.client.listener.listener import listener
from raybroker.client.loopback import loopback
from raybroker.model.xid import Xid

if TYPE_CHECKING:
    from raybroker.actors.cluster import start

__all__ = [
    "ConnectionFactory", "Xid", "aio", "connect", "connect_xa", "deploy", "errors", "listener", "loopback", "start",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__", "data"})


def __getattr__(name: str) -> Any:
    """``start`` and ``data`` bring Ray in, and only they do; the version is read where the package is installed."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("raybroker")
        except PackageNotFoundError:
            return "0+unknown"
    if name == "start":
        from raybroker.actors.cluster import start

        return start
    if name == "data":
        import raybroker.data

        return raybroker.data
    raise AttributeError(f"module 'raybroker' has no attribute {name!r}")
