"""raybroker for asyncio: the same names as coroutines, and ``async for`` over a consumer.

from raybroker import aio

async with await aio.connect() as conn:
    session = await conn.session()
    ...
"""

from raybroker.client.aio.handles import Browser, Connection, Consumer, Producer, Session, XaConnection
from raybroker.client.connection.factory import AsyncConnectionFactory as ConnectionFactory
from raybroker.client.connection.factory import connect_async as connect
from raybroker.client.connection.factory import connect_xa_async as connect_xa
from raybroker.client.connection.factory import loopback_async as loopback
from raybroker.client.connection.lookup import lookup_async as lookup

__all__ = [
    "Browser",
    "Connection",
    "ConnectionFactory",
    "Consumer",
    "Producer",
    "Session",
    "XaConnection",
    "connect",
    "connect_xa",
    "lookup",
    "loopback",
]
