"""Access to metrics: for an administrator with his password, or a scraper with the token of the endpoint.

    Authorization: Basic …     a user of the group admin, from this machine, or over TLS
                               (raybroker.authentication.unencrypted: from any, without)
    Authorization: Bearer …    the token in the file TOKEN_FILE of the security directory, which nobody else may read

The token opens metrics and nothing else, so it may come from other machines; whoever reads it on its way, where there
is no TLS (raybroker.metrics.tls), reads the metrics as well. Wrong passwords lock a user out at his address as
in every other door. The file is read again when it has changed.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Final

from raybroker.model.errors import BrokerError, ConfigError, NotAdmittedError, SecurityError
from raybroker.model.settings.settings import ConfigView
from raybroker.security.access import ADMIN_GROUP
from raybroker.security.basic import Basic
from raybroker.security.checks import CheckThreads
from raybroker.security.file_repository import FileRepository
from raybroker.security.lockout import Lockout
from raybroker.security.mechanism import UNENCRYPTED, LoginPeer, require_private
from raybroker.security.private_files import read_private
from raybroker.security.user_file import UserFile
from raybroker.services.web.credentials import who

TOKEN_FILE: Final = "metrics.token"
TOKEN_BYTES_MAX: Final = 1024
TOKEN_CHARS_MIN: Final = 16
REALM: Final = 'Basic realm="raybroker metrics", charset="UTF-8"'
ASKED: Final = (
    f"say who you are: a bearer token as in {TOKEN_FILE} of the security directory, or HTTP Basic with a user of the"
    f" group {ADMIN_GROUP}"
)


class MetricsAccess:
    """``directory``: of users and of the token; ``unencrypted``: passwords may come from other machines in clear;
    ``healthy_open``: probes are asked nothing; ``now_s``: a clock that never goes back."""

    def __init__(
        self,
        directory: Path,
        users: UserFile,
        *,
        unencrypted: bool,
        threads: int,
        now_s: Callable[[], float],
        healthy_open: bool = True,
    ) -> None:
        self.healthy_open = healthy_open
        self._token = directory / TOKEN_FILE
        self._unencrypted = unencrypted
        self._checks = CheckThreads(threads)
        self._basic = Basic(FileRepository(users), Lockout(now_s), self._checks, unencrypted=True)

    async def require(self, header: str | None, address: str, *, encrypted: bool = False) -> None:
        """Raises SecurityError for whoever may not ask, NotAdmittedError when that is known without asking again who he
        is; ``header``: Authorization, ``address``: of the client, who has come over TLS or not."""
        if header is None:
            raise SecurityError(ASKED)
        scheme, _, rest = header.partition(" ")
        if scheme.lower() == "bearer":
            if not await asyncio.to_thread(self._is_token, rest.strip()):
                raise SecurityError(f"the token is not that of {TOKEN_FILE}, or there is none; the broker's log tells")
            return
        try:
            given = who(header)
        except BrokerError as error:
            raise SecurityError(str(error)) from None
        try:
            require_private(address, self._unencrypted or encrypted, f"token in {TOKEN_FILE}")
        except SecurityError as error:
            raise NotAdmittedError(str(error)) from None
        exchange = self._basic.exchange(LoginPeer(address))
        exchange.make_challenge(given.user)
        identity, _ = await exchange.finish(given.password)
        if ADMIN_GROUP not in identity.user.groups:
            raise NotAdmittedError(f"user {given.user!r:.140} may not see metrics: that is for the group {ADMIN_GROUP}")

    def _is_token(self, shown: str) -> bool:
        """Compares in constant time; blocks for the disk."""
        try:
            known = read_private(self._token, "token of metrics", TOKEN_BYTES_MAX).strip()
        except ConfigError:
            return False
        if len(known) < TOKEN_CHARS_MIN:
            return False
        return hmac.compare_digest(known, shown.encode("utf-8", "replace"))

    def close(self) -> None:
        self._checks.close()


def metrics_access(config: ConfigView, directory: Path | None, now_s: Callable[[], float]) -> MetricsAccess | None:
    """Make the access to metrics that the configuration asks for; None: nobody is asked who he is. ``directory``: of
    security. Raises ConfigError."""
    wanted: str = config["raybroker.metrics.authentication"]
    if wanted == "none" or (wanted == "services" and not str(config["imq.service.activelist"]).strip()):
        return None
    if directory is None:
        raise ConfigError("raybroker.metrics.authentication: nothing is stored here; name raybroker.security.dir")
    return MetricsAccess(
        directory,
        UserFile(directory / config["imq.user_repository.file.filename"]),
        unencrypted=config[UNENCRYPTED],
        threads=config["raybroker.authentication.threads"],
        now_s=now_s,
        healthy_open=config["raybroker.metrics.probes"],
    )
