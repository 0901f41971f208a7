"""The table of plain commands: a row each, of what its verb's declaration does not say for a command line.

What is not here is written by hand, in the files beside this one.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Final

from raybroker.admin.verb_types import IF_EXISTS
from raybroker.cli.answers import things, without
from raybroker.cli.checks import attributes_help, check_attributes, check_chosen
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import destination_type, moment, until_ms
from raybroker.cli.objects import services, shown
from raybroker.cli.plain import Plain, make, opt
from raybroker.model.definitions.pauses import ALL as EVERYTHING
from raybroker.model.definitions.pauses import WORDS
from raybroker.model.definitions.policy import APPLY_TO
from raybroker.model.listing import Row

PAUSES: Final = tuple(map(str.upper, WORDS))
OPERATOR: Final = "It bounds what destinations and other policies set; without it, it fills in what they do not."
POLICY: Final = {
    "pattern": opt(
        "-p",
        "--pattern",
        metavar="PATTERN",
        help="Names of destinations: * is one segment, ** one or more, > any number: 'orders>', '*.dead'.",
    ),
    "apply_to": opt("--apply-to", type=StrEnum("ApplyTo", list(APPLY_TO)), help="Destinations of this type."),
    "priority": opt("--priority", metavar="N", help="Of the policies that match, the highest holds."),
}
ALL: Final = opt("--all", help="All of them.")
QUOTA: Final = {
    "option": opt(
        "-o",
        "--option",
        metavar="ATTR=VALUE",
        help="MessagesMaximum, BytesMaximum (-1 is no limit), Policy (FIFO, Preemptive), Shared (true, false). "
        "Repeatable.",
    )
}


def _which(text: str) -> str:
    """What is paused, as verbs have it; raises UsageError."""
    if text.upper() not in PAUSES:
        raise UsageError(f"-pst {text}: it is one of {', '.join(PAUSES)}")
    return text.lower()


WHICH: Final = opt(
    "-pst", "--pause-type", metavar="|".join(PAUSES), help="What of it.", parser=_which, default=EVERYTHING.upper()
)


def _those(given: Row, count: int) -> str:
    """The one that was meant, or how many."""
    one = given["name"] is not None
    return f"{given['type']} {given['name']}" if one else things(count, given["type"] or "destination")


def _new_destination(given: Row) -> None:
    check_attributes(given)
    if given["idempotent"] and given["if_exists"] == "update":
        raise UsageError("--idempotent is --if-exists keep; give one of them")
    if given["idempotent"]:
        given["if_exists"] = "keep"


def _updated(given: Row, answer: None) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in given["option"].items())
    return f"updated {given['type']} {given['name']}: {changes}"


COMMANDS: Final = (
    # ---- destinations
    Plain(
        "create dst",
        """Create a destination: raybroker create dst -t q -n JMSQueue -o consumerFlowLimit=20

        All attributes stand below with their defaults and bounds.
        """,
        options={
            "if_exists": opt(
                "--if-exists",
                type=StrEnum("IfExists", list(IF_EXISTS)),
                help="Refuse, leave it as it is, or give it the attributes.",
            )
        },
        more={"idempotent": opt("--idempotent", help="The same as --if-exists keep.")},
        check=_new_destination,
        done="{answer} {type} {name}",
        epilog=attributes_help,
    ),
    Plain(
        "list dst",
        "List destinations with their counts.",
        options={"temporary": opt("-tmp", "--temporary", help="Show temporary ones as well.")},
        columns="name, type, state, messages, unacknowledged: unacked, active_consumers: cons, producers: prod, "
        "messages_in: in, messages_out: out",
        empty="no destinations",
    ),
    Plain(
        "query dst",
        "Show attributes, state and counts of one destination; with --effective what policies make of its attributes.",
        more={"effective": opt("--effective", help="What holds of each attribute, and where the value comes from.")},
        show=shown.destination,
    ),
    Plain(
        "update dst",
        "Change attributes, all or none: raybroker update dst -t q -n JMSQueue -o maxNumMsgs=1000",
        check=check_attributes,
        done=_updated,
        epilog=attributes_help,
    ),
    Plain(
        "replace replica",
        """Have another broker keep a copy of a queue: raybroker replace replica -t q -n orders -b b2 --with b4

        For a node that is gone for good, or is to go; the queue is used meanwhile. The new copy learns and gets its
        vote, then the old one goes; where that leads, another one leads first. What is silent for
        raybroker.replicas.replace_after seconds is replaced by itself. query dst shows what is left to be done.
        """,
        options={
            "old": opt("-b", "--broker", metavar="BROKER", help="The broker whose copy is to go."),
            "to": opt("--with", metavar="BROKER", help="Who gets it; without it a broker on a node without a copy."),
        },
        done="{type} {name}: broker {answer[to]} gets a copy in place of broker {old}",
    ),
    Plain("destroy dst", "Remove a destination with its messages.", ask="destroy {type} {name} with its messages?"),
    Plain(
        "adopt dst",
        """Put an orphaned destination into the record again, with its messages: raybroker adopt dst -t q -n orders

        After restore cls, list dst shows what was created after the backup as ORPHANED; destroy dst drops it instead.
        """,
    ),
    Plain(
        "publish version",
        """Say the current version of a queue with versionKey: raybroker publish version -t q -n rollouts -v 18

        Messages that are further behind than maxStaleness are stale from now on; stalenessPolicy says what becomes of
        them. query dst shows the version.
        """,
        options={
            "version": opt("-v", "--version", metavar="N", help="The version, a whole number from 0."),
            "back": opt("--back", help="It may be lower than the one before."),
        },
    ),
    Plain("purge dst", "Discard the messages that no consumer holds.", ask="discard the messages of {type} {name}?"),
    Plain(
        "pause dst",
        """Pause one destination, or all: raybroker pause dst -t q -n orders -pst CONSUMERS --until 10m

        PRODUCERS: nothing is taken. CONSUMERS: nothing is delivered. ALL: both. INSERTION: what is under way arrives,
        and is not seen until insertion resumes.
        """,
        options={
            "which": WHICH,
            "until_ms": opt(
                "--until",
                metavar="WHEN",
                help="Resume by itself: 10m from now, or 2030-01-31T12:00.",
                parser=partial(until_ms, "--until"),
                default=None,
            ),
        },
        done=lambda given, count: (
            f"paused {given['which']} of {_those(given, count)}"
            + (f" until {moment(given['until_ms'])}" if given["until_ms"] else "")
        ),
    ),
    Plain(
        "resume dst",
        "Resume one destination, or all: raybroker resume dst -t q -n orders -pst CONSUMERS",
        options={"which": WHICH},
        done=lambda given, count: f"resumed {given['which']} of {_those(given, count)}",
    ),
    Plain(
        "reset dst",
        """Count from zero what query dst shows, of one destination or all: raybroker reset dst -t q -n orders

        Messages in and out, refused, expired and so on, peaks, consumers, time over thresholds. Metrics count on.
        """,
        done=lambda given, count: f"counts of {_those(given, count)} are zero",
    ),
    Plain(
        "compact dst",
        """Give back what a store has reserved and does not need: raybroker compact dst -t q -n orders

        The destination has to be paused (pause dst), all of them without a name. A store is that of a host, with all
        its destinations; it reclaims its space by itself while it is used, so that this is seldom needed.
        """,
        show=shown.compacted,
    ),
    # ---- stores
    Plain(
        "query store",
        """Show the stores of the hosts: bytes reserved, used and live, what is garbage, and each destination's part.

        Above a ratio of 75 % leave a store as it is; where it stays below 50 %, compact dst gives space back. A store
        reclaims its space by itself while it is used.
        """,
        show=shown.stores,
    ),
    # ---- consumers
    Plain(
        "list con",
        "List consumers: limit, granted, unacknowledged, sent; tuned: the limit is the consumer's own choice.",
        options={
            "destination": opt("-d", "--destination", "-n", metavar="NAME", help="Only those of this destination.")
        },
        columns="id, destination, active, flow, limit, tuned, granted, unacknowledged: unacked, sent",
        empty="no consumers",
        shown=lambda row: {**row, "id": str(row["id"])},
    ),
    Plain(
        "query con",
        "Show one consumer.",
        options={"id": opt("-n", "--id", type=int, metavar="ID", help="The id that list con shows.")},
    ),
    # ---- durable subscriptions
    Plain(
        "create dur",
        "Make a durable subscription before a client opens it: raybroker create dur -n audit -d prices -c billing",
        options={
            "topic": opt("-d", "--destination", metavar="TOPIC", help="The topic that it is of."),
            "shared": opt("--shared", help="Several consumers share its messages."),
            "no_local": opt("--no-local", help="Nothing that its own connection sends."),
        },
        done="created subscription {name} of topic {topic}",
    ),
    Plain(
        "list dur",
        "List subscriptions: messages that wait in each, and whether somebody uses it.",
        columns="name, client_id, topic, state, messages, consumers: cons, shared, durable, selector",
        empty="no subscriptions",
        shown=shown.subscription,
    ),
    Plain(
        "purge dur",
        "Discard the messages of a durable subscription: raybroker purge dur -n audit -c billing",
        ask="discard the messages of subscription {name}?",
    ),
    Plain(
        "destroy dur",
        "End a durable subscription with its messages: raybroker destroy dur -n audit -c billing",
        ask="end subscription {name} with its messages?",
    ),
    # ---- transactions
    Plain(
        "list txn",
        """List open and prepared transactions, local and distributed, and XA branches with a heuristic outcome.

        HEURISTICALLY_COMMITTED and HEURISTICALLY_ROLLED_BACK are prepared XA branches that an administrator has ended.
        They are listed until their transaction manager forgets them.
        """,
        columns="id, kind, state, client_id, messages, acks, created",
        empty="no transactions",
        shown=shown.transaction,
    ),
    Plain(
        "query txn",
        "Show one transaction, with its client, connection and global id.",
        shown=lambda row: without(shown.transaction(row), "host", "created_ms"),
    ),
    Plain(
        "commit txn",
        """Commit a PREPARED transaction whose manager does not: raybroker commit txn -n 5

        An XA branch is listed as HEURISTICALLY_COMMITTED from then on, until its transaction manager forgets it.
        """,
        ask="commit transaction {id} against its manager?",
    ),
    Plain(
        "rollback txn",
        """Roll back a PREPARED transaction whose manager does not: raybroker rollback txn -n 5

        An XA branch is listed as HEURISTICALLY_ROLLED_BACK from then on, until its transaction manager forgets it.
        """,
        ask="rollback transaction {id} against its manager?",
    ),
    # ---- templates
    Plain(
        "create tpl",
        "Create a template: raybroker create tpl -n small -o maxNumMsgs=100; then create dst … -o template=small",
    ),
    Plain("list tpl", "List templates with their attributes.", columns="name, attributes", empty="no templates"),
    Plain(
        "update tpl",
        "Change a template and the destinations that have not set those attributes themselves.",
        done="updated template {name} and {answer:destination}",
    ),
    Plain("destroy tpl", "Remove a template; destinations keep what they took from it.", ask="remove template {name}?"),
    # ---- forwarding agents
    Plain(
        "create saf",
        """Forward a queue to another cluster: raybroker create saf -n eu -q orders --to eu-cluster/orders

        A message is taken from the queue here when it is stored there, and none comes twice.
        """,
        options={
            "queue": opt("-q", "--queue", metavar="NAME", help="The queue that it takes from."),
            "to": opt("--to", metavar="CLUSTER/QUEUE", help="Where it puts."),
            "option": opt("-o", metavar="NAME=VALUE", help="Such as qos=At-least-once or windowSize=100. Repeatable."),
        },
    ),
    Plain(
        "list saf",
        "List forwarding agents.",
        columns="name, queue, to, qos, state, forwarded, retries, error",
        empty="no agents",
    ),
    Plain("query saf", "Show one forwarding agent."),
    Plain(
        "destroy saf",
        "End a forwarding agent; what it has not forwarded stays in its queue.",
        ask="destroy forwarding agent {name}?",
    ),
    # ---- quotas
    Plain(
        "create quota",
        "Create a quota: raybroker create quota -n small -o MessagesMaximum=1000; then update dst … -o quota=small",
        options=QUOTA,
        such_as="MessagesMaximum=1000",
    ),
    Plain("list quota", "List quotas with their attributes.", columns="name, attributes", empty="no quotas"),
    Plain(
        "query quota",
        "Show a quota: its limits, what is used of them, who waits, and the destinations that refer to it.",
        show=shown.quota,
    ),
    Plain(
        "update quota",
        "Change the limits or the policy of a quota; senders that wait for room go on waiting by the new ones.",
        options=QUOTA,
        such_as="MessagesMaximum=1000",
    ),
    Plain(
        "destroy quota", "Remove a quota to which no destination and no template refers.", ask="remove quota {name}?"
    ),
    # ---- policies
    Plain(
        "create policy",
        """Attributes for all destinations of a pattern: raybroker create policy -n s -p 'orders>' -o maxNumMsgs=1000

        It holds at once, and for destinations that are created later. query dst --effective shows what holds and why:
        the default, then the policy of the highest priority, then what the destination has itself, then the operator
        policy.
        """,
        options={**POLICY, "operator": opt("--operator", help=OPERATOR)},
        epilog=attributes_help,
    ),
    Plain(
        "list policy",
        "List policies: those of operators first, then by priority as they are asked.",
        more={"conflicts": opt("--conflicts", help="Pairs of one priority that match the same names.")},
        show=shown.policies,
    ),
    Plain(
        "query policy",
        "Show a policy, the destinations for which it holds, and policies that it is in conflict with.",
        shown=lambda row: {**row, "destinations": ", ".join(row["destinations"])},
        titled={"attributes": "attributes", "conflicts": "conflicts (policy, both match)"},
    ),
    Plain(
        "update policy",
        "Change a policy, all or nothing: raybroker update policy -n small -o maxNumMsgs=2000 --unset useDMQ",
        options={
            **POLICY,
            "operator": opt("--operator/--user-policy", help=OPERATOR),
            "unset": opt("--unset", default=None, metavar="ATTR", help="It has this attribute no more. Repeatable."),
        },
        epilog=attributes_help,
    ),
    Plain("destroy policy", "Remove a policy; what it said holds no more, at once.", ask="remove policy {name}?"),
    # ---- schedules
    Plain(
        "list sch",
        "List recurring schedules, those that come next first.",
        columns="id, type, destination, schedule, timezone, fired, next, state",
        empty="no schedules",
        shown=shown.schedule,
    ),
    Plain("query sch", "Show one schedule.", shown=shown.schedule_in_full),
    Plain(
        "destroy sch",
        "End a schedule: raybroker destroy sch -n ID; what it has sent stays.",
        ask="destroy schedule {id}?",
    ),
    # ---- messages
    Plain(
        "delete msg",
        """Delete messages: raybroker delete msg -n mq.sys.dmq -s "JMSPriority < 3"

        The destination's consumers have to be paused, unless it is mq.sys.dmq.
        """,
        more={"all": ALL},
        ask="delete messages of {type} {name}?",
        check=partial(check_chosen, "delete"),
    ),
    Plain(
        "move msg",
        """Move messages: raybroker move msg -n orders --to archive --all

        The destination's consumers have to be paused, unless it is mq.sys.dmq. What fails half way may leave
        duplicates.
        """,
        options={
            "target": opt("--to", metavar="NAME", help="Where they go."),
            "target_type": opt(
                "--to-type", metavar="q|t", help="Type of that; the same if not given.", parser=destination_type
            ),
        },
        more={"all": ALL},
        check=partial(check_chosen, "move"),
        done=lambda given, count: (
            f"moved {things(count, 'message')} of {given['type']} {given['name']}"
            f" to {given['target_type'] or given['type']} {given['target']}"
        ),
    ),
    Plain(
        "skip msg",
        """Skip what is damaged: raybroker skip msg -n orders

        A damaged message halts its destination; query dst names it. Skipping lets the destination go on with the
        messages behind it. What can still be read of a damaged one goes to mq.sys.dmq as a record.
        """,
        ask="skip the damaged messages of {type} {name}?",
    ),
    # ---- the cluster and its services
    Plain(
        "query cls",
        "Show the cluster as its home broker sees it, and the configuration change record.",
        shown=lambda row: without(row, "brokers"),
        titled={"record": "configuration change record"},
    ),
    Plain(
        "list svc",
        """List connection services and the port mapper, with their ports and states.

        UNKNOWN is one that the configuration does not ask for (imq.service.activelist).
        """,
        columns=services.COLUMNS,
        empty="no services",
    ),
    Plain(
        "pause svc",
        """Refuse new clients of a service, and process nothing of the others: raybroker pause svc -n jms

        The admin service is never paused.
        """,
    ),
    Plain("quiesce svc", "Refuse new clients of a service; the others go on: raybroker quiesce svc -n jms"),
    Plain("resume svc", "Take clients again: raybroker resume svc -n jms"),
    Plain(
        "list cxn",
        """List clients, with what they have open: raybroker list cxn --by ann -d orders

        Those of connection services, and those inside the Ray cluster (service inside) from their first producer,
        consumer or browser on. Options narrow the list down, to those that all of them fit.
        """,
        options=services.CHOICE,
        columns="id, user, service, producers: prod, consumers: cons, host",
        empty="no connections",
    ),
)

make(COMMANDS)
