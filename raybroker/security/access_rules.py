"""Access rules: which user or group may do what with which service, queue or topic.

A rule is one line ``resourceType.resourceVariant.operation.access.principalType=list``, as MQ writes it::

    version=JMQFileAccessControlModel/100
    connection.NORMAL.allow.user=*
    connection.ADMIN.allow.group=admin
    queue.*.produce.allow.user=*
    queue.orders.consume.deny.group=guests
    queue.create.allow.user=*

``connection`` has a kind of service (NORMAL or ADMIN) and no operation; ``queue`` and ``topic`` have a name or ``*``
and produce, consume or browse (queues only); ``queue.create`` and ``topic.create`` say who may create a missing one by
using it. Spaces count. Of two lines with one key the later one holds.

How a request is decided. First the rules of the very destination, then those of ``*``: the first of them that speaks
of the user decides. Within either, a rule that names the user comes before one that names a group of his, that one
before ``user=*``, and that one before ``group=*``: MQ leaves named groups and ``user=*`` open, and whoever is named is
meant. Allowed and denied at one level is denied; what no rule speaks of is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from raybroker.model.errors import ConfigError

VERSION: Final = "JMQFileAccessControlModel/100"
OPERATIONS: Final = {"queue": ("produce", "consume", "browse"), "topic": ("produce", "consume")}
SERVICE_KINDS: Final = ("NORMAL", "ADMIN")
RULES_MAX: Final = 100_000
"""Most lines of a file of rules."""
ANYBODY: Final = "*"

DEFAULT_RULES: Final = f"""\
version={VERSION}
connection.NORMAL.allow.user=*
connection.ADMIN.allow.group=admin
queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.browse.allow.user=*
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
queue.create.allow.user=*
topic.create.allow.user=*
"""
"""What holds where there is no file of rules."""


@dataclass(frozen=True, slots=True)
class User:
    """Who has authenticated: a name and the groups that the repository gives it."""

    name: str
    groups: frozenset[str] = frozenset()


class AccessRequest(NamedTuple):
    """What a user wants. ``resource``: connection, queue or topic; ``variant``: a kind of service or a destination's
    name, "" for creating; ``operation``: "" for connections."""

    resource: str
    variant: str
    operation: str

    def __str__(self) -> str:
        if self.resource == "connection":
            return f"connect to {self.variant} services"
        if self.operation == "create":
            return f"create {self.resource}s by using them"
        return f"{self.operation} with {self.resource} {self.variant!r}"


class AccessDecision(NamedTuple):
    """``rule``: the line that decided, "" when none speaks of the user."""

    allowed: bool
    rule: str


class _Rule(NamedTuple):
    allow: bool
    of: str
    names: frozenset[str]
    line: str


class AccessRules:
    """The rules of one file."""

    def __init__(self, rules: Mapping[AccessRequest, tuple[_Rule, ...]]) -> None:
        self._rules = rules

    @classmethod
    def parse(cls, text: str, source: str = "the access rules") -> AccessRules:
        """The rules of a text; raises ConfigError naming the line."""
        lines = text.splitlines()
        if len(lines) > RULES_MAX:
            raise ConfigError(f"{source}: {len(lines)} lines; at most {RULES_MAX} are read")
        found: dict[str, tuple[AccessRequest, _Rule]] = {}
        versioned = False
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            key, equals, value = line.partition("=")
            where = f"{source}, line {number}: {line!r}"
            if not versioned:
                if key != "version" or value != VERSION:
                    raise ConfigError(f"{where}: the first line is version={VERSION}")
                versioned = True
                continue
            if not equals:
                raise ConfigError(f"{where}: a rule is resource.variant.operation.allow.user=names")
            request, allow, of = _key(key, where)
            found[key] = request, _Rule(allow, of, frozenset(value.split(",")) - {""}, line)
        if not versioned:
            raise ConfigError(f"{source} is empty; the first line is version={VERSION}")
        rules: dict[AccessRequest, tuple[_Rule, ...]] = {}
        for request, rule in found.values():
            rules[request] = (*rules.get(request, ()), rule)
        return cls(rules)

    def decide(self, user: User, request: AccessRequest) -> AccessDecision:
        """Whether the user may do that, and by which rule."""
        found = _first(self._rules.get(request, ()), user)
        if found is None and request.resource != "connection" and request.operation != "create":
            found = _first(self._rules.get(request._replace(variant="*"), ()), user)
        return found or AccessDecision(False, "")

    def decide_exactly(self, user: User, request: AccessRequest) -> AccessDecision:
        """Do what :meth:`decide` does, but rules for ``*`` do not count."""
        return _first(self._rules.get(request, ()), user) or AccessDecision(False, "")


def _first(rules: Iterable[_Rule], user: User) -> AccessDecision | None:
    """What the rules of one resource say of a user, at the most particular level that speaks of him."""
    levels: list[list[_Rule]] = [[], [], [], []]
    for rule in rules:
        if rule.of == "user":
            if user.name in rule.names:
                levels[0].append(rule)
            if ANYBODY in rule.names:
                levels[2].append(rule)
        else:
            if user.groups & (rule.names - {ANYBODY}):
                levels[1].append(rule)
            if ANYBODY in rule.names:
                levels[3].append(rule)
    for level in levels:
        if level:
            deciding = next((rule for rule in level if not rule.allow), level[0])
            return AccessDecision(deciding.allow, deciding.line)
    return None


def _key(key: str, where: str) -> tuple[AccessRequest, bool, str]:
    """The left side of a rule. A destination's name may have dots in it, so its end is read first."""
    resource, _, rest = key.partition(".")
    parts = rest.rsplit(".", 2)
    if len(parts) != 3:
        raise ConfigError(f"{where}: a rule is resource.variant.operation.allow.user=names")
    rest, access, of = parts
    if access not in ("allow", "deny"):
        raise ConfigError(f"{where}: {access!r} is neither allow nor deny")
    if of not in ("user", "group"):
        raise ConfigError(f"{where}: {of!r} is neither user nor group")
    if resource == "connection":
        if rest not in SERVICE_KINDS:
            raise ConfigError(f"{where}: {rest!r} is no kind of service; they are {', '.join(SERVICE_KINDS)}")
        return AccessRequest(resource, rest, ""), access == "allow", of
    operations = OPERATIONS.get(resource)
    if operations is None:
        raise ConfigError(f"{where}: {resource!r} is none of connection, queue, topic")
    if rest in ("create", "*.create"):
        return AccessRequest(resource, "", "create"), access == "allow", of
    variant, _, operation = rest.rpartition(".")
    if not variant or operation not in operations:
        raise ConfigError(f"{where}: {operation!r} is none of {', '.join(operations)}, create")
    return AccessRequest(resource, variant, operation), access == "allow", of


def default_rules() -> AccessRules:
    """What holds without a file of rules."""
    return AccessRules.parse(DEFAULT_RULES)
