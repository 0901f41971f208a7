"""The table of plain commands: a row each, of what its verb's declaration does not say for a command line.

What is not here is written by hand, in the files beside this one.
"""

from __future__ import annotations

from typing import Final

from raybroker.cli.answers import without
from raybroker.cli.grid_words import moment
from raybroker.cli.plain import Plain, make, opt
from raybroker.model.listing import Row


def _transaction(row: Row) -> Row:
    return {**row, "id": f"{row['host']}:{row['id']}", "created": moment(row.get("created_ms"))}


def _subscription(row: Row) -> Row:
    return {**row, "state": "ACTIVE" if row["active"] else "INACTIVE"}


COMMANDS: Final = (
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
        shown=_subscription,
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
        shown=_transaction,
    ),
    Plain(
        "query txn",
        "Show one transaction, with its client, connection and global id.",
        shown=lambda row: without(_transaction(row), "host", "created_ms"),
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
    Plain(
        "list tpl",
        "List templates with their attributes.",
        columns="name, attributes",
        empty="no templates",
    ),
    Plain(
        "update tpl",
        "Change a template and the destinations that have not set those attributes themselves.",
        done="updated template {name} and {answer:destination}",
    ),
    Plain(
        "destroy tpl",
        "Remove a template; destinations keep what they took from it.",
        ask="remove template {name}?",
    ),
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
)

make(COMMANDS)
