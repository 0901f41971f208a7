"""Completing a set: one step towards the copies that the record says there are to be, taken where the log is led."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from raybroker.broker.copies.own_copy import OwnCopy
from raybroker.cluster.change_record import Change
from raybroker.cluster.replicas.set_repair import next_change, next_requirement
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.kinds.table import COPIES

WORK_S: Final = 20.0
"""How long one step may take; a change of the set waits for a majority."""

log = logging.getLogger("raybroker.cluster")


async def complete(copy: OwnCopy, now_ms: int, propose: Callable[[Change], Awaitable[None]]) -> None:
    """Take one step: what is not wanted, or was on a lost disk, goes; what is new learns and gets its vote.

    The record is told when the set is final: only then may a broker remove a copy that has gone from it.
    """
    row, placed, ids = copy.row, copy.placed, copy.ids(copy.placed, now_ms)
    wanted = tuple(ids[name] for name in placed.staying)
    there = {one["copy"] for one in row["copies"] if one["connected"]}
    known = {str(one["copy"]) for one in copy.known_rows(now_ms).values()}
    level = {one["copy"] for one in row["copies"] if one["level"]} & there & known
    voters, learners, required = row["voters"], row["learners"], int(row["required"])
    step = next_change(voters, learners, wanted, level, row["min_in_sync"], there, row["copy"])
    as_wanted = step is None and not learners and set(voters) == set(wanted)
    requirement = next_requirement(required, placed.min_in_sync, settled=as_wanted)
    if requirement is not None:
        await _change(copy, copy.port.require(requirement), f"minInSync is to be {requirement}, and was {required}")
    elif step is not None:
        if step != ("remove", row["copy"]):  # The leader's own goes when another one leads.
            await _change(copy, copy.port.change(*step), f"to {step[0]} copy {step[1]}")
    elif as_wanted and row["set_is_final"] and (placed.staying, wanted) != (placed.brokers, placed.ids):
        after: Row = placed.after(brokers=placed.staying, ids=wanted, leaving=()).attributes()
        await propose(Change(COPIES.change, placed.key, after))


async def _change(copy: OwnCopy, work: Awaitable[str], what: str) -> None:
    why = await asyncio.wait_for(work, WORK_S)
    said = "it is not done: " + why if why else "it is done"
    log.warning("[B2207] %s %s: %s: %s", *copy.placed.key, what, said)
