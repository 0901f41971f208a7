"""The properties of stores in a database (``imq.persist.store = sql``).

There is no property for a password: properties are shown by ``query bkr --explain`` and told to clients.  It is in the
passfile as imq.persist.jdbc.postgresql.password; without it libpq reads PGPASSWORD, ``~/.pgpass``, or the password file
that ``imq.persist.jdbc.postgresql.passfile`` names.
"""

from __future__ import annotations

from typing import Final

from raybroker.model.settings.setting import Setting

SQL_STORES: Final = ("sql", "jdbc")
"""Values of imq.persist.store that mean a database; the second is MQ's."""
VENDORS: Final = ("sqlite", "postgresql")

STORE: Final[tuple[Setting, ...]] = (
    Setting("imq.persist.store", "enum", "file", "broker",
            "Where persistent messages are kept: 'file' is our own journal; 'sql' (or 'jdbc', as MQ has it) are tables "
            "of the database that the properties imq.persist.jdbc name, see 'raybroker dbmgr', and needs "
            "raybroker[sql]; 'memory' keeps nothing past the process.",
            choices=("file", "memory", *SQL_STORES)),
    Setting("imq.persist.jdbc.dbVendor", "enum", "sqlite", "broker",
            "The database of imq.persist.store = sql. MQ has no default; ours is a file of SQLite in the broker's "
            "directory, which is made when it is first needed.", choices=VENDORS),
    Setting("imq.persist.jdbc.sqlite.opendburl", "string", "", "broker",
            "sqlite:////path/file: a file of SQLite on the machine of the brokers, whose tables 'raybroker dbmgr "
            "create tbl' makes. Empty: store.db in the broker's directory."),
    Setting("imq.persist.jdbc.postgresql.opendburl", "string", "", "broker",
            "postgresql://user@host:port/database, also with jdbc: in front. A password in it is refused, because this "
            "text is shown by 'query bkr --explain': it is in the passfile, imq.persist.jdbc.postgresql.password."),
    Setting("imq.persist.jdbc.postgresql.createdburl", "string", "", "broker",
            "An existing database of the same server, such as postgresql://user@host/postgres, to which 'raybroker "
            "dbmgr create all' connects to make the one of opendburl."),
    Setting("imq.persist.jdbc.postgresql.user", "string", "", "broker",
            "The user of the database, where the address names none."),
    Setting("imq.persist.jdbc.postgresql.passfile", "string", "", "broker",
            "File with the passwords of databases, in the form of ~/.pgpass (host:port:database:user:password, mode "
            "0600), on the machine of each broker. Empty: ~/.pgpass."),
    Setting("imq.persist.jdbc.connection.retry.max", "int", 60, "broker",
            "How often a host that starts tries again to reach its database, before its process ends and another one "
            "begins anew. 0: not at all.", unit="times", low=0, high=100_000, unlimited=True),
    Setting("imq.persist.jdbc.connection.retry.delay", "millis", 5000, "broker",
            "Longest time between two attempts; the first ones follow each other sooner.",
            unit="ms", low=10, high=600_000),
    Setting("raybroker.store.database_timeout_ms", "millis", 10_000, "broker",
            "Longest time of one statement of a store in a database, waiting for locks included. What takes longer "
            "counts as failed: the host stops, and starts again from what was committed.",
            unit="ms", low=100, high=600_000),
    Setting("imq.brokerid", "string", "", "broker",
            "The names of the tables of a store in a database end in S, this id, '_' and the name of the broker. "
            "Letters, digits and '_'. Empty: the name of the cluster. MQ's has to be another one for each broker; "
            "ours may be the same, because the broker's name follows."),
)  # fmt: skip
