"""Verbs of definitions: templates, quotas, policies, forwarding agents, and all definitions as one file."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from raybroker.admin.verb import By, verb
from raybroker.admin.verb_types import (
    ApplyTo,
    Attributes,
    Definitions,
    Name,
    NamePattern,
    Names,
    Priority,
    Text,
    Truth,
)
from raybroker.model.listing import Row


class DefinitionVerbs:
    """What destinations are made of, and all definitions together."""

    # ---- templates

    @verb(By.CLUSTER)
    def create_template(self, /, name: Name, **attributes: Attributes) -> None:
        """A named set of destination attributes; a destination created with template=name takes from it what it is not
        given itself. Raises ConfigError for a bad name, one that exists, an unknown attribute or a bad value."""

    @verb(By.CLUSTER)
    def update_template(self, /, name: Name, **changes: Attributes) -> int:
        """Change a template, and every destination of it that still has the old value; how many destinations."""

    @verb(By.CLUSTER)
    def destroy_template(self, /, name: Name) -> None:
        """Remove a template; destinations keep what they took from it. Raises ConfigError when there is none."""

    @verb(By.BROKER)
    def list_templates(self, /) -> list[Row]:
        """One row a template, by name: name and attributes."""

    # ---- quotas

    @verb(By.CLUSTER)
    def create_quota(self, /, name: Name, **attributes: Attributes) -> None:
        """Named limits for what destinations hold, which refer to it by their attribute ``quota``.

        Attributes are MessagesMaximum and BytesMaximum (-1: no limit), Policy ("FIFO", "Preemptive": who goes first of
        the senders that wait for room) and Shared (True: its destinations have the limits together, False: each has
        them alone). They hold on each broker. Raises ConfigError for a bad name, one that exists, an unknown attribute
        or a bad value.
        """

    @verb(By.CLUSTER)
    def update_quota(self, /, name: Name, **changes: Attributes) -> None:
        """Change a quota; senders that wait for room go on waiting, and what is held stays. ConfigError as of
        :meth:`create_quota`, for a change of Shared, and for a limit below a threshold of a destination."""

    @verb(By.CLUSTER)
    def destroy_quota(self, /, name: Name) -> None:
        """Raises IllegalStateError naming destinations or templates that refer to it, ConfigError when there is
        none."""

    @verb(By.BROKER)
    def list_quotas(self, /) -> list[Row]:
        """One row a quota, by name: name and attributes."""

    @verb(By.CLUSTER)
    def query_quota(self, /, name: Name) -> Row:
        """One quota: name, attributes, users (the destinations and templates that refer to it), messages, bytes,
        waiting (blocks of messages whose senders wait for room) and refused (messages), on all brokers that are up; and
        pools: a row for each part of the limits with broker, those counts and its destinations.

        Raises ConfigError when there is none, ConnectionLostError when a host cannot be asked.
        """

    # ---- policies

    @verb(By.CLUSTER)
    def create_policy(
        self,
        /,
        name: Name,
        pattern: NamePattern,
        *,
        apply_to: ApplyTo = "all",
        priority: Priority = 0,
        operator: Truth = False,
        **attributes: Attributes,
    ) -> None:
        """Attributes that hold for every destination whose name matches, now and when it is created later.

        pattern   as of topics: * is one segment of a name, ** one or more, > any number, such as "orders>"
        apply_to  "queue", "topic" or "all"
        priority  of the policies that match a destination the highest holds, as a whole
        operator  False: fills in what a destination does not set itself; True: an upper bound for limits, and stands
                  above the destination in everything else
        Raises ConfigError for a bad name or pattern, one that exists, an unknown attribute or a bad value, attributes
        that contradict each other, a quota that there is not, and those that cannot change while a destination is used.
        In a cluster of several brokers also for a duplicateWindowMs that would be switched on for destinations that
        there are: it holds for those that are created later. See model.definitions.policy.
        """

    @verb(By.CLUSTER)
    def update_policy(
        self,
        /,
        name: Name,
        *,
        pattern: NamePattern | None = None,
        apply_to: ApplyTo | None = None,
        priority: Priority | None = None,
        operator: Truth | None = None,
        unset: Names = (),
        **changes: Attributes,
    ) -> None:
        """Change a policy, all or nothing; ``unset``: attributes that it has no more. It holds so for destinations at
        once. ConfigError as of :meth:`create_policy`."""

    @verb(By.CLUSTER)
    def destroy_policy(self, /, name: Name) -> None:
        """Remove a policy; what it said holds no more, at once. Raises ConfigError when there is none."""

    @verb(By.BROKER)
    def list_policies(self, /) -> list[Row]:
        """One row a policy, those of operators first and then by priority: name, pattern, applyTo, priority, operator,
        attributes and conflicts (policies of the same kind and priority that match the same names → such a name)."""

    @verb(By.BROKER)
    def query_policy(self, /, name: Name) -> Row:
        """One policy as in :meth:`list_policies`, and destinations: those for which it holds. Raises ConfigError when
        there is none."""

    # ---- forwarding agents

    @verb(By.CLUSTER)
    def create_forwarding(self, /, name: Name, queue: Text, to: Text, **attributes: Attributes) -> None:
        """Have the messages of a queue forwarded to a queue of another cluster of this Ray: ``to="cluster/queue"``.

        Attributes are qos ("Exactly-once", "At-least-once", "At-most-once"), windowSize, windowInterval,
        acknowledgeInterval, conversationIdleTimeMaximum, retryDelayBase, retryDelayMaximum, retryDelayMultiplier,
        errorPolicy ("Discard", "Log", "Redirect", "Always-forward"), errorDestination and timeToLive; see
        raybroker.model.definitions.forwarding. Raises ConfigError for one that is wrong, and when there is an agent of
        that name.
        """

    @verb(By.CLUSTER)
    def destroy_forwarding(self, /, name: Name) -> None:
        """End an agent; what it has not forwarded stays in its queue. InvalidDestinationError when there is none."""

    @verb(By.CLUSTER)
    def list_forwardings(self, /) -> list[Row]:
        """One row an agent, by name: its attributes, state (STARTING, CONNECTING, RUNNING, IDLE, RETRYING), counts and
        last error."""

    @verb(By.CLUSTER)
    def query_forwarding(self, /, name: Name) -> Row:
        """One agent; raises InvalidDestinationError when there is none of that name."""

    # ---- definitions

    @verb(By.CLUSTER)
    def export_definitions(self, /, *, users: Truth = False) -> Row:
        """Everything that administrators have made, as plain values for a file: properties (of all brokers), brokers
        (properties that one has alone), quotas, templates, policies, queues, topics, subscriptions (durable ones),
        agents (forwarding) and pauses, with the attributes that are not the default; see
        raybroker.model.definitions.definitions.

        users  also the users of the file of users, with the verifiers of their passwords: whoever has these can try
               passwords without asking the broker, so keep them as you keep passwords

        Destinations with isLocalOnly are those of the broker that is asked. ``missing`` of the header names brokers
        that cannot be asked what properties they have alone. Raises ConnectionLostError when a host cannot be asked
        what it has, ConfigError for ``users`` where brokers have theirs in LDAP or no connection services, and
        IllegalStateError where a user is not the same on all brokers.
        """

    @verb(By.CLUSTER)
    def import_definitions(
        self,
        /,
        definitions: Definitions,
        *,
        dry_run: Truth = False,
        prune: Truth = False,
        keep_going: Truth = False,
        users: Truth = False,
    ) -> Row:
        """Create and change what differs from the definitions: {"steps", "same", "left", "complete", "more"}.

        dry_run     change nothing; the steps are those that would be tried
        prune       destroy what is not among the definitions; without it that stays, and ``left`` names it
        keep_going  go on after a step that fails; without it the steps after it are not tried
        users       take the users as well; ``prune`` deletes others then
        steps       rows of action (create, update, destroy), kind, name, changes (attribute → {"old", "new"}), state
                    and reason. States: planned, done, failed, unknown (an answer was lost), not done, and blocked: it
                    cannot be done at all, and then nothing is tried unless ``keep_going``
        same        how many entries were as wanted
        complete    whether there is now what the definitions want, or would be; look at it: a step that fails raises
                    nothing
        more        True: the time of one call was over; call again, and it goes on

        What is as wanted is left alone, so that a call may be repeated. Raises ConfigError for what is no definitions,
        are of a newer version or contradict each other, and for users without ``users``; IllegalStateError while
        another import is under way.
        """
