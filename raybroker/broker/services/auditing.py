"""The audit log of a broker: where it is, and what is written of administration from inside the Ray cluster.

What comes in through connection services is written there, with its user.  Inside Ray everybody has the cluster's
token, and the user is INSIDE.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from raybroker.hosting.host_port import Row
from raybroker.logs.audit import REFUSED, Audit, changes, shown
from raybroker.model.errors import BrokerError, ConfigError
from raybroker.model.settings.settings import ConfigView

INSIDE: Final = "(in the Ray cluster)"


def security_directory(config: ConfigView, beside: Path | None) -> Path | None:
    """Return where users and access rules are; ``beside``: the directory of the cluster's stores, None where there is
    none."""
    named: str = config["raybroker.security.dir"]
    if named:
        return Path(named)
    return beside / "security" if beside is not None else None


def audit_of(config: ConfigView, beside: Path | None, broker: str, now_s: Callable[[], float]) -> Audit:
    """Raises ConfigError when an audit log is wanted and there is no place for it."""
    if not config["imq.audit.enabled"]:
        return Audit.silent()
    named: str = config["raybroker.audit.dir"]
    directory = security_directory(config, beside)
    if not named and directory is None:
        raise ConfigError("imq.audit.enabled: nothing is stored here; name raybroker.audit.dir")
    folder = Path(named) if named or directory is None else directory / "audit"
    bytes_max: int = config["raybroker.audit.rolloverbytes"]
    return Audit(folder / f"{broker}.log", {"broker": broker}, now_s, bytes_max)


async def audited(audit: Audit, carry_out: Callable[[str, Row], Awaitable[Any]], verb: str, args: Row) -> Any:
    """Carry a verb out that comes from inside the Ray cluster; changes are written down with how they went."""
    if not changes(verb):
        return await carry_out(verb, args)
    what = shown(verb, args)
    try:
        answer = await carry_out(verb, args)
    except BrokerError as error:
        audit.record("admin", REFUSED, user=INSIDE, what=what, reason=str(error))
        raise
    audit.record("admin", user=INSIDE, what=what)
    return answer
