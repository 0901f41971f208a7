"""The tables of one broker's store.  Their names are ``raybroker<version>_<what>_S<id>``.

    store  one row: whose tables these are, and ``next_host``
    host   one row a host: ``incarnation`` (its opening), ``batch`` and ``blocks`` (how many were ever written),
           ``checkpoint`` (the batch of the last one, 0 for none), ``chain`` (checksum of the log's end), ``owner``
           (the process that has it open; "" after a clean end)
    log    one row a commit: the notes and checkpoints of a batch, and where in their order its blocks stand
    block  one row a block: some or many messages that a producer sent together

A ``log`` and a ``block`` have one number for their key, ``host << 40 | number``, so that the rows of a host are
neighbours, in the order in which they were written, and go by ranges.  ``ordinal`` is a signed column with the same 64
bits as the unsigned number.

The version is the least that allows what is in the tables: an empty table ``raybroker2_block_S<id>`` beside the others
says that blocks were compressed where they are stored.  A release that does not know the version refuses the tables by
it, since it looks for names of newer tables before it reads any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

VERSION: Final = 1
"""In the names of all tables with rows."""
COMPRESSED: Final = 2
"""The version of tables that have had compressed blocks."""
NEWEST: Final = COMPRESSED
HOST_SHIFT: Final = 40
NUMBER_MAX: Final = (1 << HOST_SHIFT) - 1
PARTS: Final = ("store", "host", "log", "block")


@dataclass(frozen=True, slots=True)
class SqlTables:
    """``id``: what the names end in, see :mod:`raybroker.store.sql.address`.  ``compressed``, which is in metadata of
    its own, is there when the version is COMPRESSED."""

    id: str
    metadata: Any
    store: Any
    host: Any
    log: Any
    block: Any
    compressed: Any

    @property
    def names(self) -> str:
        """The names for people."""
        return f"raybroker{VERSION}_*_S{self.id}"


def key(host: int, number: int) -> int:
    """Key of a row of ``log`` or ``block``."""
    return host << HOST_SHIFT | number


def table_name(part: str, id: str, version: int = VERSION) -> str:
    return f"raybroker{version}_{part}_S{id}"


def version_of(name: str, id: str) -> int | None:
    """The version of a table of that store; None for any other table."""
    match = re.fullmatch(rf"raybroker(\d{{1,6}})_(?:{'|'.join(PARTS)})_S{re.escape(id)}", name, re.ASCII)
    return int(match[1]) if match else None


def tables_of(sql: Any, id: str) -> SqlTables:
    metadata = sql.MetaData()

    def table(part: str, *columns: Any) -> Any:
        return sql.Table(table_name(part, id), metadata, *columns)

    def number(name: str, **more: Any) -> Any:
        return sql.Column(name, sql.BigInteger, nullable=False, **more)

    def identity() -> Any:
        # INTEGER PRIMARY KEY is SQLite's own row number: no second index.
        kind = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
        return sql.Column("id", kind, primary_key=True, autoincrement=False)

    return SqlTables(
        id,
        metadata,
        table(
            "store",
            identity(),
            sql.Column("cluster", sql.Text, nullable=False),
            sql.Column("broker", sql.Text, nullable=False),
            sql.Column("holder", sql.Text, nullable=False),
            number("next_host"),
        ),
        table(
            "host",
            identity(),
            sql.Column("name", sql.Text, nullable=False, unique=True),
            sql.Column("hosting", sql.Text, nullable=False),
            number("incarnation"),
            number("batch"),
            number("blocks"),
            number("checkpoint"),
            number("chain"),
            sql.Column("owner", sql.Text, nullable=False),
        ),
        table(
            "log",
            identity(),
            number("before"),
            number("first_block"),
            sql.Column("body", sql.LargeBinary, nullable=False),
        ),
        table(
            "block",
            identity(),
            number("destination"),
            number("ordinal"),
            number("nbytes"),
            number("crc"),
            number("row_crc"),
            sql.Column("meta", sql.LargeBinary, nullable=False),
            sql.Column("payload", sql.LargeBinary, nullable=False),
        ),
        sql.Table(table_name("block", id, COMPRESSED), sql.MetaData(), identity()),
    )


class Statements(NamedTuple):
    """The statements of a commit and of a read, made once.

    host     sets the columns of a host ``of_id`` that nobody has opened since
    log      inserts a row
    block    inserts rows
    payload  of the block ``of_id``
    """

    host: Any
    log: Any
    block: Any
    payload: Any


def statements_of(sql: Any, tables: SqlTables) -> Statements:
    host, block, bind = tables.host.c, tables.block.c, sql.bindparam
    mine = (
        host.id == bind("of_id"),
        host.incarnation == bind("of_incarnation"),
        host.batch == bind("of_batch"),
    )
    changed = {name: bind(name) for name in ("batch", "blocks", "checkpoint", "chain")}
    return Statements(
        sql.update(tables.host).where(*mine).values(changed),
        sql.insert(tables.log),
        sql.insert(tables.block),
        sql.select(block.payload).where(block.id == bind("of_id")),
    )
