"""Audit of a running system: numbered checks of configuration and state, each with what to do.

``raybroker check`` tells whether a broker is well now. The audit tells what will hurt one day: a limit that is missing,
a queue of dead messages that nobody reads, a certificate that ends soon. :func:`look` asks, and :func:`findings` is
pure: what was seen goes in, rows come out, each with

    number, name   of the check; a number is never used for another check
    grade          warning or critical, as in :mod:`raybroker.admin.checks`; note: good to know
    of             what it was found at: "queue orders", "host b1/h3", "service jms"
    text, do       what it is, and what to do about it

A look at a system with several brokers has the destinations of all of them, and the services, hosts and thresholds of
the broker that was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, Final, NamedTuple

from raybroker.admin.checks import Grade
from raybroker.model.definitions.policy import PolicyBook, policy_of
from raybroker.model.errors import BrokerError, ConfigError, NotSupportedError
from raybroker.model.listing import Row
from raybroker.model.naming.names import DEAD_MESSAGE_QUEUE, is_reserved_name

NOTE: Final = "note"
HOUR_MS: Final = 3_600_000
DAY_S: Final = 86_400
PREFETCHED_MIN: Final = 100
"""Fewer unacknowledged messages than these starve nobody."""
FULL_DAYS: Final = (30, 7)
"""A disk that is full within so many days is a warning, and critical."""
FULL_PERCENT: Final = 90
APART_MS: Final = (1_000, 30_000)
"""Clocks that are surely so far apart are a warning, and critical."""
OWN_LIMITS_MIN: Final = 3
"""Destinations with limits of their own from which on a policy would be less to look after."""
COPY_NODES: Final = 3
"""Nodes with a broker from which on a queue may have copies."""
GOVERNED_MAX: Final = 500
"""Destinations with a policy that are asked for the values that hold; those of others are in their row."""
PLAIN: Final = ("tcp", "http", "stomp", "amqp", "ws")
"""Protocols without TLS."""
ASKED: Final = (
    "list_destinations",
    "list_consumers",
    "list_subscriptions",
    "list_transactions",
    "list_services",
    "list_quotas",
    "list_policies",
    "list_brokers",
    "query_broker",
    "check_services",
    "check_broker",
    "check_cluster",
)
"""The verbs that a look asks; a broker that has no cluster or no services has nothing to tell of them."""


@dataclass(frozen=True)
class AuditLook:
    """What a system was seen as. ``rows``: verb → its rows (of a query one); ``missing``: verb → why it was not
    answered; ``now_ms``: since 1970; ``later``: what query_broker said ``later_s`` seconds afterwards, for what
    grows; ``clock_ms``: this machine's clock before and after it asked the brokers for theirs.

    Rows of users have ``default``: whether the password is a known one, None where that was not tried.
    """

    rows: Mapping[str, list[Row]]
    now_ms: int
    missing: Mapping[str, str] = field(default_factory=dict)
    later: Row = field(default_factory=dict)
    later_s: float = 0.0
    clock_ms: tuple[int, int] | None = None

    def rows_of(self, verb: str) -> list[Row]:
        """The rows of a verb; none where it was not answered."""
        return self.rows.get(verb, [])

    def followed(self, later: Row, later_s: float) -> AuditLook:
        """Return it with what query_broker said ``later_s`` seconds afterwards."""
        return replace(self, later=later, later_s=later_s)

    @property
    def destinations(self) -> list[Row]:
        """Those of programs, but for temporary ones."""
        return [
            row
            for row in self.rows_of("list_destinations")
            if not is_reserved_name(row["name"]) and not row.get("temporary")
        ]


class AuditFinding(NamedTuple):
    """One finding of a check."""

    grade: str
    of: str
    text: str
    do: str


class AuditCheck(NamedTuple):
    """A numbered check."""

    number: int
    name: str
    find: Callable[[AuditLook], Iterable[AuditFinding]]


def _place(row: Row) -> str:
    return f"{row['type']} {row['name']}"


def _attribute(row: Row, name: str) -> Any:
    """The value that holds for a destination, whatever it comes from."""
    return {**row.get("attributes", {}), **row.get("effective", {})}.get(name)


def _option(row: Row) -> str:
    return f"-t {row['type'][0]} -n {quote(row['name'])}"


# ---- destinations ----------------------------------------------------------------------------------------------------


def _unlimited(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.destinations:
        limits = [_attribute(row, name) for name in ("maxNumMsgs", "maxTotalMsgBytes")]
        if limits == [-1, -1] and not _attribute(row, "quota"):
            yield AuditFinding(
                Grade.WARNING,
                _place(row),
                "it has no limit: without consumers it grows until the disk or the memory is full",
                f"raybroker update dst {_option(row)} -o maxNumMsgs=100000, or a policy for all that are alike",
            )


def _discarding(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.destinations:
        if str(_attribute(row, "limitBehavior")).startswith("REMOVE") and _attribute(row, "useDMQ") is False:
            yield AuditFinding(
                Grade.WARNING,
                _place(row),
                "when it is full it discards messages that were confirmed, and useDMQ=false keeps none of them",
                f"raybroker update dst {_option(row)} -o useDMQ=true, or limitBehavior=FLOW_CONTROL",
            )


def _undying(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.destinations:
        if row["type"] == "queue" and _attribute(row, "redeliveryLimit") == -1:
            yield AuditFinding(
                Grade.WARNING,
                _place(row),
                "redeliveryLimit=-1: a message that its consumer always fails on comes again for ever",
                f"raybroker update dst {_option(row)} -o redeliveryLimit=20",
            )


def _unread(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.destinations:
        if row["type"] == "queue" and row.get("messages", 0) and not row.get("active_consumers", 0):
            yield AuditFinding(
                NOTE,
                _place(row),
                f"{row['messages']} messages wait, and nobody consumes them",
                f"start its consumers; raybroker list msg {_option(row)} shows what waits",
            )


def _paused(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.destinations:
        if row.get("state", "RUNNING") != "RUNNING":
            yield AuditFinding(
                NOTE, _place(row), f"it is {row['state']}", f"raybroker resume dst {_option(row)}, unless it is meant"
            )


def _automatic(look: AuditLook) -> Iterator[AuditFinding]:
    made = [row for row in look.destinations if row.get("auto_created")]
    if made:
        some = ", ".join(_place(row) for row in made[:5]) + (", …" if len(made) > 5 else "")
        yield AuditFinding(
            NOTE,
            f"{len(made)} destinations",
            f"they were made because somebody used their names ({some}): a name that is mistyped makes another one",
            "create what is wanted, and switch it off with imq.autocreate.queue=false and imq.autocreate.topic=false",
        )


def _starving(look: AuditLook) -> Iterator[AuditFinding]:
    of: dict[tuple[str, str], list[Row]] = {}
    for row in look.rows_of("list_consumers"):
        if row.get("active") and not row.get("subscription") and row["type"] == "queue":
            of.setdefault((row["type"], row["destination"]), []).append(row)
    waiting = {(row["type"], row["name"]): row.get("waiting", 0) for row in look.rows_of("list_destinations")}
    for key, rows in sorted(of.items()):
        held = sorted(row.get("unacknowledged", 0) for row in rows)
        if len(rows) > 1 and held[-1] >= PREFETCHED_MIN and held[0] == 0 and not waiting.get(key, 0):
            yield AuditFinding(
                Grade.WARNING,
                " ".join(key),
                f"one consumer holds {held[-1]} unacknowledged messages, and another one has nothing to do",
                f"raybroker update dst -t q -n {quote(key[1])} -o consumerFlowLimit=20, or prefetch=… of the consumers",
            )


# ---- dead messages, subscriptions, transactions ----------------------------------------------------------------------


def _dead(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.rows_of("list_destinations"):
        if row["name"] != DEAD_MESSAGE_QUEUE or not row.get("messages", 0):
            continue
        count, most = row["messages"], _attribute(row, "maxNumMsgs")
        full = isinstance(most, int) and most > 0 and count * 100 >= most * FULL_PERCENT
        if full:
            yield AuditFinding(
                Grade.CRITICAL,
                _place(row),
                f"{count} of {most} dead messages: the oldest are removed for new ones",
                f"raybroker list msg -n {row['name']}, then retry msg or purge dst; raise maxNumMsgs",
            )
        elif not row.get("active_consumers", 0):
            yield AuditFinding(
                Grade.WARNING,
                _place(row),
                f"{count} dead messages, and nobody reads them",
                f"raybroker list msg -n {row['name']} tells why they died; raybroker retry msg sends them back",
            )


def _forgotten(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.rows_of("list_subscriptions"):
        if row.get("durable") and not row.get("active") and row.get("messages", 0):
            who = f" of client {row['client_id']}" if row.get("client_id") else ""
            yield AuditFinding(
                Grade.WARNING,
                f"subscription {row['name']}",
                f"the durable subscription{who} to {row['topic']} has {row['messages']} messages, and nobody reads it",
                f"start its consumer, or raybroker destroy dur -n {quote(row['name'])}"
                + (f" -c {quote(row['client_id'])}" if row.get("client_id") else ""),
            )


def _in_doubt(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.rows_of("list_transactions"):
        age_ms = look.now_ms - int(row.get("created_ms") or look.now_ms)
        if str(row.get("state")) == "PREPARED" and age_ms >= HOUR_MS:
            yield AuditFinding(
                Grade.CRITICAL,
                f"transaction {row['id']}",
                f"prepared for {age_ms // HOUR_MS} h: its messages are held, and its manager does not decide",
                f"ask its manager; then raybroker commit txn -n {row['id']}, or rollback txn",
            )


def _quotas(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.rows_of("list_quotas"):
        attributes = row.get("attributes", {})
        for limit, count in (("MessagesMaximum", "messages"), ("BytesMaximum", "bytes")):
            most, now = attributes.get(limit, -1), row.get(count)
            if isinstance(now, int) and isinstance(most, int) and most > 0 and now * 100 >= most * FULL_PERCENT:
                yield AuditFinding(
                    Grade.WARNING,
                    f"quota {row['name']}",
                    f"{now} of {limit}={most} are used",
                    f"raybroker query quota -n {quote(row['name'])} shows who uses it; raise {limit}, or consume",
                )


# ---- services, hosts, brokers ----------------------------------------------------------------------------------------


def _plain_services(look: AuditLook) -> Iterator[AuditFinding]:
    for row in look.rows_of("list_services"):
        if row.get("protocol") in PLAIN and row.get("kind") != "PORTMAPPER" and row.get("port"):
            yield AuditFinding(
                NOTE,
                f"service {row['service']}",
                f"port {row['port']} has no TLS: whoever sees the network reads messages",
                "use the service with TLS (ssljms, ssladmin, httpsjms, …) where clients come over a network",
            )


def _graded(verb: str, *names: str, but: str = "", do: str) -> Callable[[AuditLook], Iterator[AuditFinding]]:
    """What ``raybroker check`` says of these checks of a verb, or of all ``but`` one, where it is not well."""

    def find(look: AuditLook) -> Iterator[AuditFinding]:
        for row in look.rows_of(verb):
            if row["grade"] != Grade.OK and row["check"] != but and (not names or row["check"] in names):
                yield AuditFinding(row["grade"], str(row["of"]), str(row["text"]), do)

    return find


def _hosts(look: AuditLook) -> Iterator[tuple[Row, Row]]:
    """Each host of the look, and as it was seen later."""
    for broker in look.rows_of("query_broker"):
        later = {row["host"]: row for row in look.later.get("hosts", ())}
        for row in broker.get("hosts", ()):
            yield row, later.get(row["host"], {})


def _disks(look: AuditLook) -> Iterator[AuditFinding]:
    for row, later in _hosts(look):
        free, total = row.get("disk_free_bytes"), row.get("disk_total_bytes")
        if not total or free is None:
            continue
        lost = free - later.get("disk_free_bytes", free)
        if lost > 0 and look.later_s > 0:
            days = free / (lost / look.later_s) / DAY_S
            if days < FULL_DAYS[0]:
                grade = Grade.CRITICAL if days < FULL_DAYS[1] else Grade.WARNING
                yield AuditFinding(
                    grade,
                    f"host {row['host']}",
                    f"as it fills now, {lost} bytes in {look.later_s:g} s, its disk is full in {days:.1f} days",
                    "raybroker top shows what grows; give limits, or a larger disk",
                )


def _one_copy(look: AuditLook) -> Iterator[AuditFinding]:
    stored = [row["host"] for row, _ in _hosts(look) if row.get("disk_total_bytes")]
    if stored:
        yield AuditFinding(
            NOTE,
            f"{len(stored)} hosts",
            "each message has one copy: what is on a disk that is lost is lost",
            "a disk that is mirrored, or a volume that is kept beside the machine",
        )


def _uncopied(look: AuditLook) -> Iterator[AuditFinding]:
    nodes = {row.get("node") for row in look.rows_of("list_brokers") if row.get("state") == "UP"} - {"", None}
    in_files = any(row.get("disk_total_bytes") for row, _ in _hosts(look))
    if len(nodes) < COPY_NODES or not in_files:
        return
    alone = [
        row
        for row in look.destinations
        if row["type"] == "queue"
        and not row.get("auto_created")
        and _attribute(row, "replicas") == 1
        and not any(_attribute(row, name) for name in ("isLocalOnly", "distributed"))
    ]
    if alone:
        some = ", ".join(row["name"] for row in alone[:5]) + (", …" if len(alone) > 5 else "")
        yield AuditFinding(
            NOTE,
            f"{len(alone)} queue{'s' if len(alone) > 1 else ''}",
            f"they are stored, there are {len(nodes)} nodes with brokers, and each has one copy ({some}): a broker that"
            " is lost with its disk takes what it has with it, and nobody goes on for it",
            "raybroker update dst -t q -n NAME -o replicas=3, for those that must not be lost",
        )


def _default_passwords(look: AuditLook) -> Iterator[AuditFinding]:
    users: dict[tuple[str, str], Row] = {
        (row["user"], str(row.get("default"))): row for row in look.rows_of("list_users")
    }
    for row in users.values():
        if row.get("default") and row.get("active", True):
            yield AuditFinding(
                Grade.CRITICAL if row.get("group") == "admin" else Grade.WARNING,
                f"user {row['user']}",
                f"the password of this user of group {row.get('group')} is a default that everybody knows, or the name",
                f"raybroker usermgr update -u {quote(row['user'])} --password",
            )
    untried = sorted({row["user"] for row in users.values() if row.get("default", False) is None})
    if untried:
        some = ", ".join(untried[:5]) + (", …" if len(untried) > 5 else "")
        yield AuditFinding(
            NOTE,
            f"{len(untried)} users",
            f"not all known passwords were tried for them: {some}",
            "raybroker audit --guess-seconds 600 takes more time for it; hashes that are dear are not tried",
        )


def _clocks(look: AuditLook) -> Iterator[AuditFinding]:
    before_ms, after_ms = look.clock_ms or (0, 0)
    clocks = [(row["now_ms"], row["broker"]) for row in look.rows_of("check_broker") if "now_ms" in row]
    pairs = [(min(clocks), max(clocks))] if len(clocks) > 1 else []
    found = [(slow, fast, fast[0] - slow[0] - (after_ms - before_ms)) for slow, fast in pairs]
    do = "set the clocks of the machines by NTP (chronyc tracking): expiry, delays and tokens go by them"
    texts = [(f"brokers {slow[1]} and {fast[1]}", apart) for slow, fast, apart in found]
    if look.clock_ms is not None:
        texts += [(f"broker {name}", max(before_ms - at_ms, at_ms - after_ms)) for at_ms, name in clocks]
    for of, apart_ms in texts:
        if apart_ms >= APART_MS[0]:
            grade = Grade.CRITICAL if apart_ms >= APART_MS[1] else Grade.WARNING
            whose = "their clocks are" if of.startswith("brokers") else "its clock and that of this machine are"
            yield AuditFinding(grade, of, f"{whose} at least {apart_ms / 1000:.1f} s apart", do)


def _own_limits(look: AuditLook) -> Iterator[AuditFinding]:
    if "list_policies" not in look.rows:
        return
    limits = ("maxNumMsgs", "maxTotalMsgBytes", "quota")
    if any(
        row.get("attributes", {}).get(name) not in (None, -1, "")
        for row in look.rows_of("list_policies")
        for name in limits
    ):
        return
    own = [
        row
        for row in look.destinations
        if not row.get("auto_created") and any(row.get("attributes", {}).get(name, -1) != -1 for name in limits[:2])
    ]
    if len(own) >= OWN_LIMITS_MIN:
        yield AuditFinding(
            NOTE,
            f"{len(own)} destinations",
            "each has limits of its own, and no policy gives any: a destination that is created next has none",
            "raybroker create policy -n limits -p '>' -o maxNumMsgs=100000, and more exact ones of a higher priority",
        )


def _unanswered(look: AuditLook) -> Iterator[AuditFinding]:
    for verb, why in look.missing.items():
        yield AuditFinding(
            Grade.UNKNOWN, verb.replace("_", " "), f"it was not answered: {why}", "repeat the audit then"
        )


CHECKS: Final = (
    AuditCheck(1, "no limit", _unlimited),
    AuditCheck(2, "discards when full", _discarding),
    AuditCheck(3, "endless redelivery", _undying),
    AuditCheck(4, "nobody consumes", _unread),
    AuditCheck(5, "paused", _paused),
    AuditCheck(6, "created automatically", _automatic),
    AuditCheck(7, "prefetch starves", _starving),
    AuditCheck(8, "dead messages", _dead),
    AuditCheck(9, "abandoned subscription", _forgotten),
    AuditCheck(10, "transaction in doubt", _in_doubt),
    AuditCheck(11, "quota nearly full", _quotas),
    AuditCheck(12, "service without TLS", _plain_services),
    AuditCheck(
        13,
        "certificate ends",
        _graded("check_services", "certificate", do="raybroker keytool makes a new one; then restart the service"),
    ),
    AuditCheck(
        14,
        "service is not well",
        _graded("check_services", but="certificate", do="raybroker check svc; the log has why"),
    ),
    AuditCheck(15, "disk fills", _disks),
    AuditCheck(
        16,
        "broker is not well",
        _graded("check_broker", do="raybroker check bkr; make room with purge dst and compact dst, or give it more"),
    ),
    AuditCheck(17, "one copy", _one_copy),
    AuditCheck(
        18,
        "cluster is not well",
        _graded("check_cluster", do="raybroker check cls; raybroker up starts a broker again"),
    ),
    AuditCheck(19, "not answered", _unanswered),
    AuditCheck(20, "default password", _default_passwords),
    AuditCheck(21, "clocks apart", _clocks),
    AuditCheck(22, "limits without a policy", _own_limits),
    AuditCheck(23, "unreplicated durable queue", _uncopied),
)
"""All checks, by number."""
_WORST: Final = (NOTE, str(Grade.WARNING), str(Grade.UNKNOWN), str(Grade.CRITICAL))


def findings(look: AuditLook, numbers: Container[int] | None = None) -> list[Row]:
    """All that was found, the worst first, and of equals by number; ``numbers``: by these checks alone."""
    rows = [
        {"number": check.number, "name": check.name, **found._asdict(), "grade": str(found.grade)}
        for check in CHECKS
        if numbers is None or check.number in numbers
        for found in check.find(look)
    ]
    return sorted(rows, key=lambda row: -_WORST.index(row["grade"]))


def grade_of(rows: Iterable[Row]) -> Grade:
    """The worst grade; notes are ok."""
    grades = [row["grade"] for row in rows if row["grade"] != NOTE]
    return Grade(max(grades, key=_WORST.index)) if grades else Grade.OK


Guess = Callable[[list[Row]], list[Row]]
"""Rows of users with their verifiers → without them, and with ``default``."""


def look(admin: Any, now_ms: Callable[[], int], guess: Guess | None = None) -> AuditLook:
    """Ask ``conn.admin()`` for what the checks look at; what is not answered is in ``missing``.

    ``now_ms``: this machine's clock; ``guess``: tries known passwords, without it nothing is said of users.
    """
    rows: dict[str, list[Row]] = {}
    missing: dict[str, str] = {}
    clock_ms = None
    for verb in (*ASKED, *(("list_users",) if guess is not None else ())):
        before_ms = now_ms()
        try:
            answer = getattr(admin, verb)(**({"verifiers": True} if verb == "list_users" else {}))
        except (ConfigError, NotSupportedError):
            continue  # A broker without a cluster, services or users has not got it.
        except BrokerError as error:
            missing[verb] = str(error)
            continue
        if verb == "check_broker":
            clock_ms = before_ms, now_ms()
        rows[verb] = [answer] if isinstance(answer, dict) else list(answer)
        missing |= {f"{verb} of {of}": why for of, why in getattr(answer, "missing", {}).items()}
    if guess is not None and "list_users" in rows:
        rows["list_users"] = guess(rows["list_users"])
    _ask_of_each(admin, rows, missing)
    return AuditLook(rows, now_ms(), missing, clock_ms=clock_ms)


def _ask_of_each(admin: Any, rows: dict[str, list[Row]], missing: dict[str, str]) -> None:
    """What lists do not have: the use of each quota, and the values that hold where there are policies."""
    book = PolicyBook(policy_of(row["name"], _fields(row)) for row in rows.get("list_policies", ()))
    quotas, destinations = rows.get("list_quotas", []), rows.get("list_destinations", [])
    governed = [row for row in destinations if any(book.policies_of(row["type"], row["name"]))]
    if len(governed) > GOVERNED_MAX:
        missing["query_destination"] = f"policies hold for {len(governed)} destinations, {GOVERNED_MAX} were asked for"
    asked: list[tuple[str, Row, tuple[str, ...]]] = [("query_quota", row, (row["name"],)) for row in quotas]
    asked += [("query_destination", row, (row["type"], row["name"])) for row in governed[:GOVERNED_MAX]]
    for verb, row, place in asked:
        try:
            row.update(getattr(admin, verb)(*place))
        except BrokerError as error:
            missing[f"{verb} {' '.join(place)}"] = str(error)


def _fields(row: Row) -> Row:
    return {name: row[name] for name in ("pattern", "applyTo", "priority", "operator", "attributes")}
