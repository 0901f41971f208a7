"""Requests of a connection as a producer that makes schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raybroker.engine.ports import Clock
from raybroker.engine.schedules.schedule_log import ScheduleRow
from raybroker.engine.schedules.schedules import Schedules
from raybroker.engine.sessions.attachments import Attachments
from raybroker.engine.sessions.session import Arguments, Operation, Session
from raybroker.model.blocks.block import Block
from raybroker.model.errors import InvalidDestinationError, ProtocolError
from raybroker.model.settings.setting import OVERRIDE_MS_MAX

ID_CHARS_MAX: Final = 64
REPEAT_MAX: Final = (1 << 31) - 1


class ScheduleRequests:
    """Requests about schedules."""

    def __init__(self, schedules: Schedules, attachments: Attachments, clock: Clock) -> None:
        self._schedules = schedules
        self._attachments = attachments
        self._clock = clock

    def operations(self) -> Mapping[str, Operation]:
        return {"schedule": self._add}

    def _add(self, session: Session, request: int, args: Arguments) -> None:
        """A producer makes a schedule; the answer comes when it is durable."""
        attachment = session.producers.get(int(args["handle"]))
        if attachment is None or attachment.number not in self._attachments.by_number:
            raise InvalidDestinationError("the producer is not attached any more")
        block = Block(bytes(args["message"]))
        block.check()
        if block.count != 1:
            raise ProtocolError(f"a schedule has one message, not {block.count}")
        id_, repeat = str(args["id"]), int(args.get("repeat") or 0)
        ttl_ms, delay_ms = int(args.get("ttl_ms") or 0), int(args.get("delay_ms") or 0)
        if not 1 <= len(id_) <= ID_CHARS_MAX or not 0 <= repeat <= REPEAT_MAX:
            raise ProtocolError(f"schedule {id_[:ID_CHARS_MAX]!r} with repeat {repeat} is not understood")
        if not (0 <= ttl_ms <= OVERRIDE_MS_MAX and 0 <= delay_ms <= OVERRIDE_MS_MAX):
            raise ProtocolError(f"a schedule with ttl_ms {ttl_ms} and delay_ms {delay_ms}; at most {OVERRIDE_MS_MAX}")
        now_ms = self._clock.now_ms()
        row = ScheduleRow(
            number=0,
            id=id_,
            destination=0,
            expression=args["schedule"],
            zone=args["timezone"],
            repeat=repeat,
            catch_up=bool(args.get("catch_up")),
            ttl_ms=ttl_ms,
            delay_ms=delay_ms,
            created_ms=now_ms,
            fired=0,
            last_ms=now_ms,
        )
        self._schedules.add(attachment.destination, row, block, lambda: session.peer.reply(request, {"id": id_}))
