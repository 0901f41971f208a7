"""Access: the decision on a user's request, with its reason, and the error and the lines of the log of a refusal."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raybroker.model.errors import NotAdmittedError, SecurityError
from raybroker.model.naming.names import is_reserved_name, is_temporary_name

if TYPE_CHECKING:
    from raybroker.security.access_rules import AccessDecision, AccessRequest, User
    from raybroker.security.rule_file import RuleFile

log = logging.getLogger("raybroker.security")

_NO_RULE: Final = "no rule allows it"
ADMIN_GROUP: Final = "admin"


class Access:
    """``file``: the rules, None where access control is switched off."""

    def __init__(self, file: RuleFile | None) -> None:
        self._file = file

    @property
    def source(self) -> str:
        """The path of the rules, "" where access control is switched off: what :meth:`parse` takes."""
        return str(self._file.path) if self._file is not None else ""

    @property
    def missing(self) -> str:
        """The path of the rules where there is no such file; "" for all is well."""
        return str(self._file.path) if self._file is not None and self._file.missing else ""

    def state(self) -> object:
        """What the rules are now: the same object as long as they are the same. Raises ConfigError."""
        return self._file.rules() if self._file is not None else None

    @classmethod
    def parse(cls, source: str) -> Access:
        from raybroker.security.rule_file import RuleFile

        return cls(RuleFile(Path(source)) if source else None)

    def decide(self, user: User, request: AccessRequest) -> AccessDecision:
        """Switched off, everything is allowed but the ADMIN services, which the group admin has alone.

        Temporary destinations are for everybody who knows their names, which cannot be guessed. Names that begin with
        mq. are the broker's: they need a rule of their own, those of ``*`` do not speak of them.
        """
        from raybroker.security.access_rules import AccessDecision

        if self._file is None:
            if request.resource == "connection" and request.variant == "ADMIN" and ADMIN_GROUP not in user.groups:
                return AccessDecision(False, "")
            return AccessDecision(True, "imq.accesscontrol.enabled=false")
        rules = self._file.rules()
        if request.resource != "connection" and is_temporary_name(request.variant):
            return AccessDecision(True, "a temporary destination")
        if request.resource != "connection" and is_reserved_name(request.variant):
            return rules.decide_exactly(user, request)
        return rules.decide(user, request)

    def require(self, user: User, request: AccessRequest) -> None:
        """Raises SecurityError, which does not tell the rule: that is for the log."""
        decision = self.decide(user, request)
        if not decision.allowed:
            log.warning(
                "[B4051] user %r may not %s: %s",
                user.name,
                request,
                f"rule {decision.rule!r}" if decision.rule else _NO_RULE,
            )
            kind = NotAdmittedError if request.resource == "connection" else SecurityError
            raise kind(
                f"user {user.name!r} may not {request}; an administrator sees why in the log, or with raybroker"
                " why-denied"
            )


def user_of(claims: dict[str, Any]) -> User:
    """Who a connection service says that a client is."""
    from raybroker.security.access_rules import User

    return User(str(claims["user"]), frozenset(claims["groups"]))
