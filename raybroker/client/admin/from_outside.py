"""Administration from outside the Ray cluster alone: what a command line needs, which has one thing to ask.

It goes the way of a connection's ``admin()``, through the same service and with the same login, without the handles
that messages need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from raybroker.client.admin.admin import Admin
from raybroker.client.cluster.cluster_directory import ClusterDirectory
from raybroker.client.connection.overrides import overrides
from raybroker.client.io.io_thread import IoThread
from raybroker.client.ways.reaching import Given, calls_to, checked
from raybroker.config import Config


def logged_in(
    url: str,
    attributes: Mapping[str, object],
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
) -> AbstractContextManager[Admin]:
    """Log in at the service; the verbs hold until the context ends. Raises as ``rb.connect`` does."""
    if overrides():  # They may name another broker: who makes connections knows what they mean.
        from raybroker.client.connection.factory import ConnectionFactory

        connection = ConnectionFactory(attributes).connect(url, username=username, password=password, token=token)
        return _open(connection.admin(), connection.close)
    io, who = IoThread.shared(), Given(username, password, token)
    calls = calls_to(url, Config.from_values(checked(attributes)), who, None).calls
    directory = ClusterDirectory(calls, io.run(calls.log_in()), pinned=False)
    return _open(
        Admin(lambda verb, args: io.run(directory.admin(verb, args))),
        lambda: io.run(directory.close()),
    )


@contextmanager
def _open(admin: Admin, close: Callable[[], None]) -> Iterator[Admin]:
    try:
        yield admin
    finally:
        close()
