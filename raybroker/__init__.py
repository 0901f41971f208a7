"""raybroker: the message broker that lives inside a Ray cluster.

    import raybroker as rb

    rb.start()                                    # brokers as actors of the running Ray, or of a local one
    with rb.connect() as conn:
        session = conn.session()
        session.producer("orders").send({"id": 1})
        print(session.receive("orders", timeout=5).body)

``rb.loopback()`` is the same without Ray, for tests.  ``raybroker.aio`` has the handles as coroutines.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raybroker import aio, errors
    from raybroker import data as data
    from raybroker import serve as serve
    from raybroker.actors.cluster import Cluster, start
    from raybroker.actors.pools.named_pool import NamedPool, pool, pools
    from raybroker.client.admin.admin import Admin
    from raybroker.client.blocking.handles import Browser, Connection, Consumer, Producer, Session, XaConnection
    from raybroker.client.connection.events import ConnectionEvent, ConsumerEvent
    from raybroker.client.connection.factory import ConnectionFactory, connect, connect_xa
    from raybroker.client.connection.lookup import lookup
    from raybroker.client.connection.overrides import overrides
    from raybroker.client.consumer.message import Message
    from raybroker.client.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
    from raybroker.client.listener.deployment import deploy
    from raybroker.client.listener.listener import Listener, listener
    from raybroker.client.listener.pool import Pool
    from raybroker.client.loopback import loopback
    from raybroker.client.options import ProducerOptions, SendOptions
    from raybroker.client.producer.bodies.body_reference import ref
    from raybroker.model.batch import Batch
    from raybroker.model.naming.xid import Xid

    __version__: str

__all__ = [
    "aio",
    "connect",
    "connect_xa",
    "deploy",
    "errors",
    "listener",
    "lookup",
    "loopback",
    "overrides",
    "pool",
    "pools",
    "ref",
    "start",
    "Admin",
    "Batch",
    "Browser",
    "Cluster",
    "Connection",
    "ConnectionEvent",
    "ConnectionFactory",
    "Consumer",
    "ConsumerEvent",
    "Destination",
    "Listener",
    "Message",
    "NamedPool",
    "Pool",
    "Producer",
    "ProducerOptions",
    "Queue",
    "SendOptions",
    "Session",
    "TemporaryQueue",
    "TemporaryTopic",
    "Topic",
    "XaConnection",
    "Xid",
]

_HOMES = {
    "Admin": "raybroker.client.admin.admin",
    "Batch": "raybroker.model.batch",
    "Browser": "raybroker.client.blocking.handles",
    "Cluster": "raybroker.actors.cluster",
    "Connection": "raybroker.client.blocking.handles",
    "ConnectionEvent": "raybroker.client.connection.events",
    "ConnectionFactory": "raybroker.client.connection.factory",
    "Consumer": "raybroker.client.blocking.handles",
    "ConsumerEvent": "raybroker.client.connection.events",
    "Destination": "raybroker.client.destinations",
    "Listener": "raybroker.client.listener.listener",
    "Message": "raybroker.client.consumer.message",
    "NamedPool": "raybroker.actors.pools.named_pool",
    "Pool": "raybroker.client.listener.pool",
    "Producer": "raybroker.client.blocking.handles",
    "ProducerOptions": "raybroker.client.options",
    "Queue": "raybroker.client.destinations",
    "SendOptions": "raybroker.client.options",
    "Session": "raybroker.client.blocking.handles",
    "TemporaryQueue": "raybroker.client.destinations",
    "TemporaryTopic": "raybroker.client.destinations",
    "Topic": "raybroker.client.destinations",
    "XaConnection": "raybroker.client.blocking.handles",
    "Xid": "raybroker.model.naming.xid",
    "connect": "raybroker.client.connection.factory",
    "connect_xa": "raybroker.client.connection.factory",
    "deploy": "raybroker.client.listener.deployment",
    "listener": "raybroker.client.listener.listener",
    "lookup": "raybroker.client.connection.lookup",
    "loopback": "raybroker.client.loopback",
    "overrides": "raybroker.client.connection.overrides",
    "pool": "raybroker.actors.pools.named_pool",
    "pools": "raybroker.actors.pools.named_pool",
    "ref": "raybroker.client.producer.bodies.body_reference",
    "start": "raybroker.actors.cluster",
}
"""Public name → the module that has it, imported when the name is first used: ``loopback`` brings the broker in,
``start`` brings Ray in, and the process of a host imports no client."""
_MODULES = ("aio", "data", "errors", "serve")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__", "data", "serve"})


def _load(module: str) -> Any:
    """Import a module. What comes with it stays: the collector would go through that again and again meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collects:
            gc.enable()


def _found(name: str) -> Any:
    """A public name, from its module; the version is read where the package is installed."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("raybroker")
        except PackageNotFoundError:
            return "0+unknown"
    if name not in _HOMES and name not in _MODULES:
        raise AttributeError(f"module 'raybroker' has no attribute {name!r}")
    try:
        if name in _MODULES:
            return _load(f"raybroker.{name}")
        module = _load(_HOMES[name])
    except ModuleNotFoundError as error:
        from raybroker.model.packages import how_to_install

        if (hint := how_to_install(error)) is None:
            raise
        raise ModuleNotFoundError(f"rb.{name}: {hint}", name=error.name) from None
    found = globals()[name] = getattr(module, name)
    return found


if not TYPE_CHECKING:  # A type checker knows the names above, and no others.
    __getattr__ = _found
