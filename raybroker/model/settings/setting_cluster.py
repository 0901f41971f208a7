"""The properties of a cluster of brokers; all brokers must have the same values."""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.setting import INT_MAX, Setting

DAY_MS: Final = 24 * 60 * 60 * 1000

CLUSTER: Final[tuple[Setting, ...]] = (
    Setting("imq.instancename", "string", "", "broker",
            "Name of the instance, which is the cluster's: stores, logs, users and keys lie apart by it. The same as "
            "'up --name'; where both are given they have to agree. Empty: default. MQ's default is imqbroker."),
    Setting("imq.cluster.url", "string", "", "broker",
            "The cluster file that all brokers share: a path, or file:///path. What the file, variable or flag that "
            "names it sets besides wins over it. http:// is not read: no broker could start while that server is "
            "down."),
    Setting("imq.cluster.brokerlist", "string", "", "broker",
            "The brokers of the cluster, separated by commas: each a name, or name@node with the IP address or the "
            "name of the Ray node it is to run on. Empty: one broker, or as many as are started."),
    Setting("imq.cluster.masterbroker", "string", "", "broker",
            "Name of the broker that keeps the configuration change record. Empty: the first of the list, unless "
            "imq.cluster.nomasterbroker is true."),
    Setting("imq.cluster.nomasterbroker", "bool", False, "broker",
            "True: no master broker. With imq.cluster.sharecc.persist.jdbc.url the record is in a table that all "
            "brokers share; without it changes go to all brokers that run, and one that is down misses them for good: "
            "for development."),
    Setting("imq.cluster.sharecc.persist.jdbc.url", "string", "", "broker",
            "The database whose table has the configuration change record, as SQLAlchemy writes it: "
            "postgresql://user@host/database, or sqlite:////path/file for brokers on one machine. Needs "
            "imq.cluster.nomasterbroker = true and raybroker[sql]; make the table with 'dbmgr create sharecc_tbl'. "
            "Its password is imq.cluster.sharecc.persist.jdbc.postgresql.password in the passfile: this text is shown "
            "by 'query bkr --explain'."),
    Setting("raybroker.cluster.table_timeout_ms", "millis", 5000, "broker",
            "Longest time of one call to the database; then the table counts as not reachable. The database itself is "
            "given half of it, also for locks.",
            unit="ms", low=100, high=60_000),
    Setting("raybroker.cluster.table_poll_ms", "millis", 5000, "broker",
            "How often the table is read although no broker says that there is something new.",
            unit="ms", low=50, high=DAY_MS),
    Setting("imq.cluster.clusterid", "string", "", "broker",
            "Identifies the cluster: a broker with another id is refused, and a table of another cluster. Empty: the "
            "name of the cluster."),
    Setting("imq.cluster.transport", "enum", "tcp", "broker",
            "How messages go inside the Ray cluster, between hosts and whoever sends and receives there, also when "
            "they are forwarded. ssl: with TLS and the keystore of each broker's machine (imq.keystore.*), whose "
            "certificate brokers tell their clients; a broker without a key does not start. Ray's own calls, by which "
            "programs administer and brokers talk to each other, are Ray's to encrypt (RAY_USE_TLS); heartbeats are "
            "authenticated, and carry no messages.", choices=("tcp", "ssl")),
    Setting("imq.cluster.dynamicChangeMasterBrokerEnabled", "bool", False, "broker",
            "Whether 'changemaster cls' may move the configuration change record to another broker while brokers run."),
    Setting("imq.cluster.ha", "bool", False, "broker",
            "Whether another broker takes over what a lost one has stored, and starts it on its own node. Needs "
            "imq.persist.store = sql in PostgreSQL, the record in a table (imq.cluster.sharecc.persist.jdbc.url), and "
            "the table in which brokers see each other: 'dbmgr create tbl', or 'dbmgr upgrade hastore' where there are "
            "messages."),
    Setting("imq.cluster.monitor.interval", "seconds", 1, "broker",
            "How often a broker of imq.cluster.ha gives the database a sign of life, and looks for those of the "
            "others. MQ's default is 30 s.", unit="s", low=1, high=3600),
    Setting("imq.cluster.monitor.threshold", "int", 3, "broker",
            "After so many looks without a sign of life of a broker, which its peers do not hear either, the eldest of "
            "these takes it over; each younger one waits as long again. MQ's default is 2 of its longer intervals.",
            unit="looks", low=1, high=1000),
    Setting("imq.cluster.ha.takeoverWaitTimeout", "seconds", 300, "broker",
            "How long a broker that was taken over may take until it serves clients; then the takeover has failed, and "
            "is tried again.", unit="s", low=1, high=86_400),
    Setting("raybroker.cluster.standby", "int", 1, "broker",
            "How many broker processes stand by beside a broker of imq.cluster.ha, each to become a lost one without "
            "the time that a start of a process takes. One takes the memory of an idle broker, about 150 MB; 0: none.",
            unit="brokers", reload="live", low=0, high=8),
    Setting("raybroker.cluster.standby_hosts", "int", 1, "broker",
            "How many host processes stand by for each of raybroker.cluster.standby: as many as brokers have hosts "
            "outside their own process. One takes the memory of an idle host, about 130 MB. Hosts beyond them are "
            "started when they are needed.", unit="hosts", reload="live", low=0, high=64),
    Setting("raybroker.cluster.heartbeat_ms", "millis", 500, "broker",
            "How often brokers tell each other that they live.", unit="ms", low=50, high=60_000),
    Setting("raybroker.cluster.suspect_ms", "millis", 1000, "broker",
            "Silence after which a broker is suspected; nothing is done about it yet.",
            unit="ms", low=100, high=DAY_MS),
    Setting("raybroker.cluster.down_ms", "millis", 1500, "broker",
            "Silence after which a broker counts as down: its consumers and producers are not waited for. Ray's own "
            "verdict takes 12 to 65 s.", unit="ms", low=200, high=DAY_MS),
    Setting("raybroker.host.hung_ms", "millis", 5000, "broker",
            "Silence after which a broker ends one of its hosts that runs and does not answer, so that it starts again "
            "from its store; 0: never.", unit="ms", low=0, high=DAY_MS),
    Setting("raybroker.cluster.master_retry_ms", "millis", 5000, "broker",
            "How often a broker that waits for the master, or for the shared table, tries to reach it.",
            unit="ms", low=50, high=DAY_MS),
    Setting("raybroker.cluster.brokers_max", "int", 256, "broker",
            "Brokers of one cluster: each has a heartbeat with each other.", unit="brokers", low=1, high=INT_MAX),
    Setting("raybroker.replicas.replace_after", "seconds", 900, "broker",
            "How long a broker that keeps a copy of a queue's log may be silent until another one, on a node that has "
            "none, keeps it in its place. 0: never by itself, see 'replace replica'.",
            unit="s", reload="live", low=0, high=30 * 86_400),
    Setting("raybroker.path.lease_ms", "millis", 60_000, "broker",
            "How long the path service keeps a unit of order for a producer that it hears nothing of.",
            unit="ms", low=1000, high=DAY_MS),
)  # fmt: skip
