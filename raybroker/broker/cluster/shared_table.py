"""Calls to the table that brokers share, made in threads, so that a database that hangs blocks no event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from raybroker.cluster import events as ev
from raybroker.model.errors import BrokerError, RequestTimeoutError
from raybroker.model.shared_record import FoundRecord, TableRow
from raybroker.system.failpoint import failpoint
from raybroker.transport.daemon_calls import in_daemon_thread

log = logging.getLogger("raybroker.cluster")


class Table(Protocol):
    """See store.record_table; all methods block."""

    shown: str

    def read(self, record: str, number: int) -> FoundRecord | None: ...
    def insert(self, record: str, rows: Sequence[TableRow]) -> bool: ...
    def shorten(self, record: str, before: int, number: int, digest: str, base: str) -> bool: ...


class SharedTable:
    """One call at a time, in a thread that ends with it.

    A call that takes longer than ``timeout_ms`` is given up; while its thread is still there, no other is made.
    """

    def __init__(self, table: Table, timeout_ms: int) -> None:
        self._table = table
        self._timeout_s = timeout_ms / 1000
        self._busy = False

    @property
    def shown(self) -> str:
        return self._table.shown

    async def carry_out(self, call: ev.OnTable) -> ev.TableDone:
        """Carry out a call and never raise: what went wrong is in the answer."""
        if self._busy:
            return ev.TableDone(call.token, error="an earlier call to the database has not come back yet")

        def work() -> ev.TableDone:
            try:
                return self._work(call)
            finally:
                self._busy = False

        self._busy = True
        try:
            return await asyncio.wait_for(in_daemon_thread(work), self._timeout_s)
        except TimeoutError:
            text = f"no answer from the database within {self._timeout_s:g} s"
            return ev.TableDone(call.token, error=text, unknown=True)

    def _work(self, call: ev.OnTable) -> ev.TableDone:
        """Another thread."""
        failpoint("table.call")
        try:
            done = self._carry_out(call)
        except BrokerError as error:
            return ev.TableDone(call.token, error=str(error), unknown=isinstance(error, RequestTimeoutError))
        except Exception as error:  # whatever a driver raises, the machine waits for an answer
            log.exception("a call to %s failed", self.shown)
            return ev.TableDone(call.token, error=repr(error), unknown=True)
        failpoint("table.called")
        return done

    def _carry_out(self, call: ev.OnTable) -> ev.TableDone:
        table = self._table
        match call:
            case ev.ReadTable(token, record, number):
                return ev.TableDone(token, found=table.read(record, number))
            case ev.AppendTable(token, record, rows):
                return ev.TableDone(token, done=table.insert(record, rows))
            case ev.ShortenTable():
                args = (call.record, call.before, call.number, call.digest, call.base)
                return ev.TableDone(call.token, done=table.shorten(*args))
