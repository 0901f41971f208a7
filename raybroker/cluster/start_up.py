"""Start-up of a broker: which record it has, and whether it is the master, before it hears other brokers.

The master that a broker followed last counts, even when the configuration does not name it yet.  A master
whose configuration names another one now waits for that one: a backup may have been restored there.  A configured
master without a record begins one; brokers that know another of the same term refuse it, so a master that lost its disk
does not empty the cluster.
"""

from __future__ import annotations

from raybroker.cluster.change_record import ChangeRecord
from raybroker.cluster.master import Master
from raybroker.cluster.member_state import MemberContext
from raybroker.cluster.saved_record import Saved
from raybroker.cluster.term import FIRST_TERM, Leadership, restored_term


def begin(life: MemberContext, master: Master, found: Saved, new_id: str) -> None:
    """``found``: what the record file held; ``new_id``: for a record that begins here."""
    if life.settings.table:
        _with_table(life, found)
    elif life.settings.master:
        _with_master(life, master, found, new_id)
    else:
        _without_master(life, found, new_id)


def _with_table(life: MemberContext, found: Saved) -> None:
    """Continue a copy of the table's record; replace any other record by the table's."""
    if found.claim is not None and not found.claim.master:
        life.claim = found.claim


def _without_master(life: MemberContext, found: Saved, new_id: str) -> None:
    """A record of its own; one that a master kept, or a table, goes on under another id: it is no copy any more."""
    term = found.claim.term if found.claim is not None else 0
    life.claim = Leadership(term, "", "")
    if found.record is None or found.claim is None or found.claim.master or found.claim.record:
        life.record = ChangeRecord(new_id, life.cluster, term, state=life.record.state.copy())
        life.configured = ""
        life.persist(life.saved().frames(), replace=True)
    life.take_record_as_durable()


def _with_master(life: MemberContext, master: Master, found: Saved, new_id: str) -> None:
    claim, configured = found.claim, life.settings.master
    if claim is None or not claim.master:
        term = claim.term if claim is not None else 0
        life.claim = Leadership(0, configured, "")
        if configured == life.name:
            term = restored_term(term) if term else FIRST_TERM
            master.begin_record(Leadership(term, life.name, new_id))
        return
    life.claim = claim
    if claim.master != life.name:
        if life.offer is not None and life.offer.claim.term <= claim.term:
            life.offer = None
    elif configured in (found.configured, life.name):
        _reign_again(life, master, found)
    else:
        life.trouble = (
            f"broker {life.name} has kept the configuration record until now, and imq.cluster.masterbroker is"
            f" {configured} now: it waits for {configured}, which may have another record"
        )
        life.held = configured, lambda: _reign_again(life, master, found)
    if configured == life.name and claim.master != life.name and configured != found.configured:
        life.note(
            f"imq.cluster.masterbroker is {configured} and its record was not restored here: broker"
            f" {claim.master} stays the master",
            warning=True,
        )
    elif configured != claim.master:
        life.note(
            f"imq.cluster.masterbroker is {configured}, and the record says that broker {claim.master} is the"
            f" master since term {claim.term}: correct the property",
            warning=True,
        )


def _reign_again(life: MemberContext, master: Master, found: Saved) -> None:
    """The previous master continues, or begins the term for which it was chosen."""
    life.trouble, claim = "", life.claim
    if found.record is not None and (found.record.id, found.record.term) == (claim.record, claim.term):
        life.when_durable(lambda: _resume(life, claim))
    elif not master.take_over(claim):
        life.trouble = f"record {claim.record[:8]} is missing on its master {life.name}: restore a backup"


def _resume(life: MemberContext, claim: Leadership) -> None:
    life.is_master = life.claim == claim
    life.membership.progress(life.durable.number)
