"""The client id: the identity of a client over restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raybroker.model.errors import IllegalStateError
from raybroker.model.naming.names import check_client_id
from raybroker.model.settings.settings import ConfigView
from raybroker.system.entropy import token

IDENTITY_BYTES: Final = 12
USER_MARK: Final = "${u}"
DEFAULT_USER: Final = "guest"


class ClientIdentity:
    """Who a connection is: its client over restarts, and itself.

    client_id   None: it has none
    connection  what the hosts know it by, so that they know which channels are one client's
    identified  the brokers know that it has the client id
    used        it has had a session: the client id is fixed from then on
    reopen      makes another connection to the same place, also in another process; None: none can be made there
    """

    def __init__(self, client_id: str | None, reopen: Callable[[], Any] | None = None) -> None:
        self.client_id = client_id
        self.reopen = reopen
        self.used = False
        self.connection = token(IDENTITY_BYTES).hex()
        self.identified = False

    def choose(self, client_id: str) -> None:
        """Raises IllegalStateError when the brokers know it by another one."""
        if self.identified and client_id != self.client_id:
            raise IllegalStateError(f"the connection has the client id {self.client_id!r} already")
        self.client_id = check_client_id(client_id)


def client_id_of(config: ConfigView, client_id: str | None, username: str | None) -> str | None:
    """The client id of a connection: the one given, or imqConfiguredClientID.

    ``${u}`` at its start stands for the user: ``${u}xyz`` of guest is ``${u:guest}xyz``, so that users who share a
    factory do not share an id.  Raises IllegalStateError for one that is given while imqDisableSetClientID is true.
    """
    if client_id is None:
        configured: str = config["imqConfiguredClientID"]
        if configured.startswith(USER_MARK):
            configured = f"${{u:{username or DEFAULT_USER}}}{configured.removeprefix(USER_MARK)}"
        client_id = configured or None
    else:
        check_may_choose(config)
    return check_client_id(client_id) if client_id is not None else None


def check_may_choose(config: ConfigView) -> None:
    """Raises IllegalStateError where the client id is the administrator's business alone."""
    if config["imqDisableSetClientID"]:
        raise IllegalStateError(
            "imqDisableSetClientID is true: imqConfiguredClientID is the client id, and programs choose none"
        )
