"""Verbs of brokers and of the cluster: their properties, metrics, connection services and checks."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from raybroker.admin.verb import By, verb
from raybroker.admin.verb_types import (
    Attributes,
    Id,
    MasterChange,
    Name,
    Names,
    Pattern,
    Properties,
    PropertyChange,
    Reason,
    Seconds,
    Text,
    Thresholds,
    Truth,
    Type,
    UserChange,
    What,
)
from raybroker.model.listing import Listing, Row


class BrokerVerbs:
    """Brokers, the cluster, and what clients come in by."""

    # ---- brokers

    @verb(By.CLUSTER, always=True)
    def list_brokers(self, /) -> list[Row]:
        """One row a broker: broker, state (UP, SUSPECT, JOINING, DOWN, LEFT), seat (whether it is the coordinator),
        master, node, how far its copy of the record goes, and ``reason``: why it is not up. A broker without a cluster
        tells of itself, with ``alone``.

        Where brokers share a store (imq.cluster.ha) also what that has of each: store_state (OPERATING,
        TAKEOVER_STARTED, TAKEOVER_COMPLETE, TAKEOVER_FAILED, QUIESCE_STARTED, QUIESCE_COMPLETE, SHUTDOWN_STARTED,
        BROKER_DOWN, UNKNOWN), store_reason, tenure, takeovers, taken_by, store_node, and silent_ms: how long ago its
        last sign of life was. Of brokers that are up also standby_brokers and standby_hosts: how many processes each
        has ready to become a lost broker.

        Where queues have copies also ``copies``: of how many it keeps one; ``copies_led``: how many of them it leads;
        ``copies_behind``: how many are not there, far behind or without a vote, as their leaders see it; and
        ``copies_unconfirmed``: of how many nothing is confirmed now, because no copy leads or too few are there.

        Of brokers that are drained (:meth:`drain_broker`) also drain (DRAINING, DRAINED when it leads nothing more that
        another one can lead, UNKNOWN while it cannot be asked), drained_since_ms, leads: how many queues with copies it
        leads still, unled: of how many it keeps a copy that hears no leader, and stuck: the names of those that it
        leads and no other broker can lead now.
        """

    @verb(By.CLUSTER, always=True)
    def query_cluster(self, /) -> Row:
        """The cluster as the home broker sees it: state, master, term, brokers, and its copy of the record. A broker
        without a cluster is ``alone``, and has no record."""

    @verb(By.CLUSTER)
    def reload_cluster(self, /, brokers: Names) -> list[str]:
        """Make these the brokers of the cluster, on all that are up; which those were.

        Raises ConfigError when a broker that is up is not among them: stop it first.
        """

    @verb(By.CLUSTER)
    def change_master(self, /, target: Name) -> MasterChange:
        """Move the configuration change record to another broker, while brokers run.

        A broker that is not the master passes it on to the master; raises BrokerGoneError when that cannot be asked.
        """

    @verb(By.CLUSTER, always=True)
    def takeover_broker(self, /, broker: Name) -> Row:
        """Have the broker that is asked take a lost one over: it starts it on its own node, under its name and with
        what it has stored. That happens by itself; this is an operator's last word, for a broker that was stopped, or
        whose takeover has failed. Answers at once, and :meth:`list_brokers` shows later what came of it.

        Where brokers keep copies of queues (replicas) another copy leads what a lost one has led, and that needs no
        word either: with it nobody waits for the time that is between two changes of leader. The answer has
        ``destinations``: those that nobody led.

        Raises IllegalStateError for a broker that lives, and NotSupportedError where brokers share no store
        (imq.cluster.ha) and nothing of the broker has copies.
        """

    @verb(By.CLUSTER, always=True)
    def drain_broker(self, /, broker: Name, to: Text | None = None, off: Truth = False) -> Row:
        """Have others serve what a broker serves, before maintenance of its node. Answers at once, and
        :meth:`list_brokers` shows later what came of it.

        Each queue with copies that it leads is led by another broker, whose copy has all of it, within a second or so;
        clients follow, and nothing that was confirmed is lost. It leads none from then on, also when it was restarted,
        until it is drained no more: ``off``. The answer has ``leads``, ``stuck`` (as :meth:`list_brokers`), ``stays``
        and ``staying``: how many of its destinations have messages and no copies, which stay with it, and which
        (type, name, messages).

        Where brokers share a store (imq.cluster.ha) it is moved: shut down in order as by :meth:`shutdown_broker`, and
        started beside the broker ``to``, or one that is up, as soon as it is down, under its name and with what it has
        stored; the answer has ``taker``.

        Raises BrokerGoneError for a broker that is not up, IllegalStateError where no other one is, ConfigError for
        ``to`` without a shared store and ``off`` with one, NotSupportedError for a broker without a cluster.
        """

    @verb(By.CLUSTER)
    def drain_node(self, /, node: Text, deadline_s: Seconds = 0, off: Truth = False) -> Row:
        """Have nothing new begin on a Ray node that is about to be taken away: consumers there get no more messages,
        what they have not begun goes back, uncounted, and their programs are told (``Message.draining``, an event of
        the connection); pools have their instances elsewhere; brokers there are drained as by :meth:`drain_broker`.
        Answers at once; ``leaving`` of :meth:`list_consumers` and ``unacknowledged`` show what is in hand still.

        node        its id, as ``ray.nodes()`` and :meth:`list_brokers` show it
        deadline_s  when it is taken away, seconds from now; 0: nobody has said. What is in hand then comes again
                    elsewhere, when the node is gone
        off         it stays after all

        The answer has since_ms and until_ms, ``was_drained``, the ``brokers`` there, and ``trouble``: broker → why it
        is not drained. A node that comes back has another id. Raises ConfigError for what is no id.
        """

    @verb(By.CLUSTER)
    def list_drained_nodes(self, /) -> list[Row]:
        """One row a node that was drained (:meth:`drain_node`): node, since_ms, until_ms (0: nobody has said)."""

    @verb(By.CLUSTER)
    def backup_record(self, /) -> bytes:
        """The configuration change record as the bytes of a backup file."""

    @verb(By.BROKER)
    def query_broker(self, /) -> Row:
        """The broker: its name, state (UP, STOPPING, RESTARTING), when it was started, its clock (now_ms); its hosts:
        destinations, connections, messages, bytes, store; ``changed``: the properties that :meth:`update_broker` has
        changed, and their values."""

    @verb(By.CLUSTER, always=True)
    def shutdown_broker(self, /, broker: Text | None = None, time_s: Seconds = 0) -> Row:
        """Shut a broker down, without a name the one that is asked; answers at once, and :meth:`list_brokers` shows
        later that it is down. What it has stored comes back when it is started again.

        Its services take no new clients from now on, but those for administration; handles inside the Ray cluster have
        no connection to a broker, and go on. After ``time_s`` seconds producers are told to wait, consumers have
        raybroker.shutdown.delivery seconds to acknowledge what they were given, and the broker ends. A second request
        in the time before takes the place of the first.

        Raises BrokerGoneError for a broker that is not up, and NotSupportedError for one of ``rb.loopback``.
        """

    @verb(By.CLUSTER, always=True)
    def restart_broker(self, /, broker: Text | None = None, time_s: Seconds = 0) -> Row:
        """Shut a broker down as :meth:`shutdown_broker`, and have it started again at once, on the same node, with the
        options that it was started with and what :meth:`update_broker` has changed since."""

    @verb(By.CLUSTER, always=True)
    def update_broker(self, /, properties: Properties, broker: Text | None = None) -> PropertyChange:
        """Change properties of a broker, or of all that are up, while they run: at once, all or none, and for its next
        starts too, until the configuration itself says something else than it does now.

        What can change are those whose setting says so: imq.log.level, imq.log.file.rolloverbytes and .rolloversecs,
        imq.autocreate.queue and .topic, imq.message.max_size, imq.destination.logDeadMsgs and some more.  Raises
        ConfigError for a property that is read at the start only, does not exist, does not take the value, or has to
        be the same on all brokers when one is named; BrokerGoneError when that one is not up.
        """

    # ---- metrics

    @verb(By.ROWS)
    def metrics(self, /, names: Pattern | None = None) -> Listing:
        """What was counted: one dict a broker with cluster, broker, ``own`` (of the broker), ``types`` (sums over
        queues and over topics) and ``destinations`` (those whose name matches ``names``; * for any text, none without).

        Keys are those of raybroker.metrics.catalogue; a histogram is (observations by bucket, sum).
        """

    # ---- connection services

    @verb(By.ROWS, always=True)
    def list_services(self, /) -> Listing:
        """One row a connection service and broker, and one for the port mapper: service, kind (NORMAL, ADMIN,
        PORTMAPPER), protocol, port, state (RUNNING, PAUSED, QUIESCED, UNKNOWN for one that is not active), connections,
        connections_max, accepted, refused, console (where a browser finds it, or ""); and what connections of its
        clients carried since the hosts were started: messages_in, messages_out, message_bytes_in, packets_in,
        packet_bytes_in and so on."""

    @verb(By.EACH, always=True)
    def pause_service(self, /, name: Name) -> None:
        """New clients of a service get an error, and nothing of the others is processed until :meth:`resume_service`.

        Raises ConfigError for a service that is not active, and for those of kind ADMIN.
        """

    @verb(By.EACH, always=True)
    def quiesce_service(self, /, name: Name) -> None:
        """New clients of a service get an error, the others go on. Raises ConfigError for one that is not active."""

    @verb(By.EACH, always=True)
    def resume_service(self, /, name: Name) -> None:
        """A paused or quiesced service takes clients again. Raises ConfigError for one that is not active."""

    @verb(By.EACH, always=True)
    def update_service(self, /, name: Name, broker: Name | None = None, **changes: Attributes) -> None:
        """Change a service of one broker, or of all that have it, until the broker is restarted; nobody is closed.

        minThreads, maxThreads  half of the latter bounds its clients
        port                    where it listens, 0 for any free port: first there, and then at the old port no more;
                                the port mapper tells it from then on
        Raises ConfigError for other attributes, values out of bounds, and a port that is taken, and changes nothing of
        that broker then; InvalidDestinationError where no broker of that name has services.
        """

    @verb(By.CLUSTER, always=True)
    def list_connections(
        self,
        /,
        service: Name | None = None,
        *,
        user: Text | None = None,
        address: Text | None = None,
        client_id: Text | None = None,
        destination: Name | None = None,
        type: Type | None = None,
        consumer: Id | None = None,
    ) -> Listing:
        """One row a client of the services: id, user, service, host, producers, consumers, client_id, platform,
        ``destinations`` and ``consumer_ids`` (what it has producers and consumers of), and what its open connections to
        hosts carried, as in :meth:`list_services`.

        A client inside the Ray cluster (the program of a loopback, too) has ``inside`` as service, no user, its process
        id, and ``hosts``: those that it is connected to, of all brokers. It is in the list from its first producer,
        consumer or browser on; what it carried is not counted (None).

        Only those that all of the other arguments fit: ``address`` is one, or a network such as 10.0.0.0/8;
        ``destination``: the client has a producer or a consumer of it (of that ``type``); ``consumer``: the client has
        that consumer, by the id that :meth:`list_consumers` shows.  Raises ConfigError for what is no address.
        """

    @verb(By.CLUSTER, always=True)
    def destroy_connection(self, /, id: Id, reason: Reason = None) -> None:
        """End a client's connections, for good: it gets ConnectionEndedError with the ``reason``, what it held comes
        again elsewhere, and the log has it.

        Raises InvalidDestinationError when there is none of that id, and ConnectionLostError, which names them, when
        brokers or hosts could not be asked and the client may go on there.
        """

    @verb(By.CLUSTER, always=True)
    def destroy_connections(
        self,
        /,
        reason: Reason = None,
        *,
        service: Name | None = None,
        user: Text | None = None,
        address: Text | None = None,
        client_id: Text | None = None,
        destination: Name | None = None,
        type: Type | None = None,
        consumer: Id | None = None,
    ) -> int:
        """End the connections of all clients that the arguments fit, as in :meth:`list_connections`; how many.

        One of the arguments at least has to be given.  Clients of services for administration are left alone.
        Raises ConnectionLostError as :meth:`destroy_connection`, after it has ended all others.
        """

    @verb(By.BROKER, always=True)
    def why_denied(
        self,
        /,
        user: Name,
        operation: Name,
        destination: Name | None = None,
        type: Type = "queue",
        service: Name = "jms",
    ) -> Row:
        """Whether a user of the file of users may do something, and by which rule: {"allowed", "request", "rule"}.

        operation  produce, consume or browse with a destination; create; connect to the service, or to the one, or to
                   those of the kind (NORMAL, ADMIN), that stands where the destination does
        What is asked takes other rights as well: to connect to the service, and to create a destination that is not
        there. ``request`` is the first that is denied.
        Raises ConfigError for an unknown user or operation.
        """

    @verb(By.CLUSTER)
    def why(
        self,
        /,
        what: What,
        id: Id,
        destination: Name | None = None,
        type: Type = "queue",
        client_id: Text | None = None,
    ) -> Listing:
        """Why something waits: one row for each place where it is, a broker's destination or subscription.

        what         "message": by its id, with its destination; of a topic a row for each subscription
                     "consumer", "transaction": by its id, as the lists show them
                     "producer": by the id of one of its messages, or the 16 digits in it; of one destination or all
                     "destination": by its name
                     "subscription": by its name, with its client id and topic where these have several
        A row has ``what``, ``id``, where it is, ``state``, ``text`` (the reasons in one line), ``reasons``, and for a
        message ``history``: why it was delivered again.  A reason has ``code``, ``text``, ``remedy``, which takes it
        away, and facts such as ``consumer``, ``until_ms``, ``since_ms``, ``transaction``, ``unit``, ``session`` and
        ``quota``.  Reasons with a ``consumer`` are those of one consumer: a message goes when one of them is free of
        all its own.  A message that has died is explained where it lies now, ``state`` DEAD, with why it died.
        Bodies are not shown; values of headers are, where a selector looks at them. Brokers that cannot be asked are
        ``missing``, and what they have waits until they are back: where that may be what was asked for, there is a row
        with the reason broker_lost, since when they were not heard.
        Raises InvalidDestinationError for what is not there, ConfigError for an id that is none.
        """

    # ---- users

    @verb(By.ROWS, always=True)
    def list_users(self, /, *, verifiers: Truth = False) -> Listing:
        """One row a user of the connection services and broker: broker, user, group and active; ``verifiers``: also
        what is kept of the password, verifier.

        Raises ConfigError where a broker has its users in LDAP, or no connection services.
        """

    @verb(By.CLUSTER, always=True)
    def set_user(self, /, name: Name, *, verifier: Text, group: Text = "user", active: Truth = True) -> UserChange:
        """Make a user of the connection services of all brokers that are up, or give the one that there is another
        password or state; one that is so already stays. Connections that are open stay open.

        verifier  of SCRAM or a hash of argon2, as raybroker usermgr makes them; passwords are not taken
        group     admin, user or anonymous; it stays as it was made
        Raises ConfigError as :meth:`list_users`, and for what cannot be.
        """

    @verb(By.CLUSTER, always=True)
    def destroy_user(self, /, name: Name) -> UserChange:
        """Delete a user on all brokers that are up; one that is not there is deleted already. Its open connections stay
        open: :meth:`destroy_connections` ends them. Raises ConfigError as :meth:`list_users`."""

    # ---- checks

    @verb(By.ROWS, always=True)
    def check_broker(self, /, warn: Thresholds = None, critical: Thresholds = None) -> Listing:
        """Graded checks of the brokers. One row a check: check, broker, of (what was looked at), grade (ok, warning,
        critical, unknown) and text, and the figure with its thresholds where it has some.

        broker   it runs, and is not about to end
        open     it takes clients: it knows the master and the record
        hosts    all its hosts answer
        clock    what its clock shows; now_ms, milliseconds since 1970
        memory   the memory level: YELLOW and ORANGE are a warning, RED is critical; memory_percent
        disk     the disks of its hosts have room (raybroker.store.low_free_percent), and are quick; disk_free_percent
        load     what its destinations hold is below its thresholds (raybroker.system.messagesThresholdHigh)
        services those that the configuration asks for listen

        ``warn`` and ``critical`` give thresholds for memory_percent and disk_free_percent.
        """

    @verb(By.CLUSTER, always=True)
    def check_cluster(self, /) -> list[Row]:
        """Graded checks of the cluster as the broker that is asked sees it. Rows are as those of :meth:`check_broker`.

        members  all brokers are up
        store    where brokers share one: each operates in it; a takeover that has failed is critical
        drain    a broker is drained: a warning until that is over
        master   the master is there, where the cluster has one
        record   the broker's copy of the record and its settings agree with the others'
        """

    @verb(By.ROWS, always=True)
    def check_services(
        self, /, service: Name | None = None, warn: Thresholds = None, critical: Thresholds = None
    ) -> Listing:
        """Graded checks of the connection services that are active, or of one. Rows are as those of
        :meth:`check_broker`. Raises ConfigError for a service that is not active.

        state        it is neither paused nor quiesced
        listener     its port accepts connections
        clients      there is room for more: clients_percent, from 90 a warning, from 100 critical
        certificate  of those with TLS, is good for a while: certificate_days, below 30 a warning, below 7 critical
        """

    @verb(By.CLUSTER)
    def check_destination(
        self, /, type: Type, name: Name, warn: Thresholds = None, critical: Thresholds = None
    ) -> list[Row]:
        """Graded checks of one destination: ``state`` (paused is a warning, halted by damage is critical) and its
        figures, which have no thresholds but those that ``warn`` and ``critical`` give:

        messages, bytes   what it holds
        oldest_s          seconds since its oldest message came, or since the start of its host
        full_percent      what it holds of maxNumMsgs or maxTotalMsgBytes, whichever is more
        dead              messages that died there since ``counted_since_ms``
        consumers         active ones; fewer are worse
        producers         fewer are worse

        Rows are as those of :meth:`check_broker`.
        """
