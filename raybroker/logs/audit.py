"""The audit log: one line, a JSON object, for each thing that an auditor asks about, in a rolling file of its own.

    time, audit (AUDIT), broker, event, result (ok, refused), user, address, service, connection, what, reason

Fields without a value are left out. ``event`` is one of EVENTS. Refused logins of a flood are counted beyond
REFUSALS_PER_S a second and told in one line, so that nobody can push older lines out of the archives by failing often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from raybroker.logs.files import RollingFile

EVENTS: Final = ("start", "stop", "login", "lockout", "denied", "admin", "closed")
OK: Final = "ok"
REFUSED: Final = "refused"
REFUSALS_PER_S: Final = 50
FIELD_CHARS_MAX: Final = 300
_SHOWN: Final = (
    "type",
    "name",
    "id",
    "broker",
    "client_id",
    "topic",
    "destination",
    "service",
    "queue",
    "to",
    "target",
    "which",
    "source",
    "commit",
    "port",
    "reason",
    "user",
    "address",
    "consumer",
)
"""Arguments of verbs that are written; others may have contents of messages in them."""
_NAMED: Final = ("properties", "changes", "attributes")
"""Arguments of which the names alone are written."""
READING: Final = ("list_", "query_", "browse_", "export_", "metrics", "why", "backup_", "check_")
"""How verbs begin that change nothing."""


def _file(path: Path, bytes_max: int) -> RollingFile:
    from raybroker.logs.files import RollingFile  # A loopback writes no audit.

    return RollingFile(path, lambda: (bytes_max, -1))


class Audit:
    """``path``: None writes nothing; ``now_s``: seconds since 1970; ``bytes_max``: of the file, which then becomes an
    archive; ``source``: fields of every line, such as broker and host."""

    def __init__(
        self, path: Path | None, source: Mapping[str, str], now_s: Callable[[], float], bytes_max: int = -1
    ) -> None:
        self.path = path
        self.bytes_max = bytes_max
        self._source = dict(source)
        self._now_s = now_s
        self._file = _file(path, bytes_max) if path is not None else None
        self._second = 0
        self._refusals = 0

    @classmethod
    def silent(cls) -> Audit:
        return cls(None, {}, float)

    def told(self) -> dict[str, Any]:
        """What hosts of the broker need for audit logs of their own; empty when there is none."""
        return {"path": str(self.path), "bytes": self.bytes_max, **self._source} if self.path is not None else {}

    @classmethod
    def of_host(cls, told: Mapping[str, Any], host: str, now_s: Callable[[], float]) -> Audit:
        """The audit log of a host, beside the broker's."""
        if not told:
            return cls.silent()
        path, broker = Path(str(told["path"])), str(told.get("broker", ""))
        name = host.removeprefix(f"{broker}/").replace("/", "-")  # A host's key has its broker in front.
        return cls(
            path.with_name(f"{path.stem}-{name}{path.suffix}"),
            {"broker": broker, "host": host},
            now_s,
            int(told["bytes"]),
        )

    def record(self, event: str, result: str = OK, **fields: str) -> None:
        """Write one line."""
        if self._file is None:
            return
        now_s = self._now_s()
        if result == REFUSED and not self._let(now_s):
            return
        self._write(now_s, event, result, fields)

    def _let(self, now_s: float) -> bool:
        """Whether another refusal is written in this second."""
        if int(now_s) != self._second:
            more, self._second, self._refusals = self._refusals - REFUSALS_PER_S, int(now_s), 0
            if more > 0:
                self._write(now_s, "login", REFUSED, {"reason": f"{more} further refusals in one second"})
        self._refusals += 1
        return self._refusals <= REFUSALS_PER_S

    def _write(self, now_s: float, event: str, result: str, fields: Mapping[str, str]) -> None:
        import orjson

        from raybroker.logs.lines import moment

        assert self._file is not None
        row = {
            "time": moment(now_s, None).isoformat(timespec="milliseconds"),
            "audit": "AUDIT",
            **self._source,
            "event": event,
            "result": result,
            **{key: str(value)[:FIELD_CHARS_MAX] for key, value in fields.items() if value},
        }
        self._file.append(orjson.dumps(row, default=str).decode(), now_s)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def changes(verb: str) -> bool:
    """Whether a verb changes anything."""
    return not verb.startswith(READING)


def shown(verb: str, args: Mapping[str, Any]) -> str:
    """A verb with those of its arguments that may be written down."""
    words = [f"{key}={args[key]!r:.100}" for key in _SHOWN if args.get(key) is not None]
    for key in _NAMED:
        if isinstance(args.get(key), Mapping):
            words += sorted(str(name)[:60] for name in args[key])
    words += sorted(str(key)[:60] for key in args if key not in _SHOWN and key not in _NAMED)
    return f"{verb}({', '.join(words)})"
