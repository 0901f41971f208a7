"""Events that a broker's member machine takes, and the actions that it asks for.

The shell carries actions out in order.  ``SendEnvelope`` may lose, repeat and delay its message; every other action
must be carried out, or the broker has to stop. The shell does not delay actions until a write is durable: the machine
asks for what depends on a ``Persist`` only after its ``Persisted``.
"""

from __future__ import annotations

from typing import Final

from raybroker.cluster.change_record import Change, RecordState
from raybroker.cluster.member_messages import Envelope
from raybroker.model.errors import BrokerError
from raybroker.model.shared_record import FoundRecord, TableRow
from raybroker.model.value import Value

OK: Final = "OK"
BAD_REQUEST: Final = "BAD_REQUEST"
NOT_ALLOWED: Final = "NOT_ALLOWED"
UNAVAILABLE: Final = "UNAVAILABLE"
PRECONDITION_FAILED: Final = "PRECONDITION_FAILED"
CHANGE_MASTER_RESULTS: Final = (OK, BAD_REQUEST, NOT_ALLOWED, UNAVAILABLE, PRECONDITION_FAILED)
"""What ``changemaster`` answers; all but OK mean that nothing was changed."""


# ---- events


class Event(Value):
    """An input of the machine."""


class Started(Event):
    """The first event, once.  Nothing was sent before."""


class MemberTick(Event):
    """Time has passed.  Needed at ``Member.wake_at_ms`` or sooner; more often does no harm."""


class EnvelopeReceived(Event):
    """Another broker's machine sent this."""

    envelope: Envelope


class Persisted(Event):
    """The frames of the ``Persist`` with this token, and of all before it, are on disk."""

    token: int


class Applied(Event):
    """The ``Apply`` of this number is done; ``failure`` says why not all of it, and it will be asked for again.

    ``partly``: what concerns a host that does not start waits for it, see ``HostBack``, and holds up nothing else.
    """

    number: int
    failure: str = ""
    partly: bool = False


class HostBack(Event):
    """A host for which a part of the record was waiting is there: all of the record is carried out anew."""


class Exchanged(Event):
    """The active consumers of ``peer`` are known here, and ours there."""

    peer: str


class Propose(Event):
    """A client or an administrator of this broker wants a change.  ``request``: any number not in use; see Answer."""

    request: int
    change: Change


class ChangeMaster(Event):
    """An administrator wants another master, while the cluster runs.  Answered with ``result``."""

    request: int
    target: str


class Compress(Event):
    """Compress the record: its history becomes one snapshot."""


class BrokersConfigured(Event):
    """The brokers of the cluster have these names now: the list was edited, or others were found."""

    names: tuple[str, ...]


class TableDone(Event):
    """The call to the shared table with this token is over.

    ``error`` "": it was carried out; ``found`` is what was read, None when there is no table; ``done`` says whether it
    was changed.  ``unknown``: after an error, it may have been changed, or be changed yet.
    """

    token: int
    found: FoundRecord | None = None
    done: bool = False
    error: str = ""
    unknown: bool = False


class Leave(Event):
    """The broker shuts down in order."""


# ---- actions


class Action(Value):
    """An output of the machine."""


class SendEnvelope(Action):
    """Carry an envelope to broker ``to``, once, without waiting for anything.

    What a machine sends to the sender of the envelope that it was just given may travel back as the answer of that
    call: it then reaches that very instance, also when its name leads to a newer one by now.
    """

    to: str
    envelope: Envelope


class Persist(Action):
    """Append ``frames`` to the record file and sync, or replace its whole content by them; then say Persisted(token).

    In order, one after the other; several may be done with one sync.  An error of the disk stops the broker.
    """

    token: int
    frames: tuple[bytes, ...]
    replace: bool = False


class Apply(Action):
    """Bring this broker's destinations, subscriptions and templates up to entry ``number``; then say Applied(number).

    ``whole`` None: carry out ``changes``, in order.  Else ``whole`` is what has to be in the end, whatever is there now
    (``change_record.differences`` helps); do not keep or change it after Applied.  One Apply is under way at a time.
    Carrying out twice has to do no harm.
    """

    number: int
    changes: tuple[Change, ...]
    whole: RecordState | None = None


class ReadTable(Action):
    """Read what the shared table has after entry ``number`` of ``record``; then say TableDone(token).

    One of these three is under way at a time.  They may fail; none may be carried out after an answer without
    ``unknown``.
    """

    token: int
    record: str
    number: int


class AppendTable(Action):
    """Append rows to ``record`` in the shared table, all or none, if it ends just before them."""

    token: int
    record: str
    rows: tuple[TableRow, ...]


class ShortenTable(Action):
    """Make entry ``number``, with its hash, the end of the base of ``record`` if ``before`` is the end now."""

    token: int
    record: str
    before: int
    number: int
    digest: str
    base: str


class ExchangeConsumers(Action):
    """Tell ``peer`` the active consumers here and learn its own; then say Exchanged(peer)."""

    peer: str


class OpenForClients(Action):
    """Clients may connect: this broker is fully integrated.  Said once a life."""


class Answer(Action):
    """A Propose or ChangeMaster is over.

    ``error`` None: a change is in the record for good and applied here; ``number`` is its entry, 0 without a master.
    ``result`` is one of CHANGE_MASTER_RESULTS for a ChangeMaster, with ``text`` saying why; "" for a Propose.
    """

    request: int
    error: BrokerError | None = None
    number: int = 0
    result: str = ""
    text: str = ""


class ViewChanged(Action):
    """``Member.membership`` shows something new under this version: wake who waits for it."""

    version: int


class Note(Action):
    """A line for the log; ``warning`` when an administrator should look."""

    text: str
    warning: bool = False


class Halt(Action):
    """Stop serving at once: another instance of this broker has taken over, or the broker has left in order."""

    reason: str


OnTable = ReadTable | AppendTable | ShortenTable
