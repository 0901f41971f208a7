"""The record file: the cluster state that a broker keeps, as frames, and its replacement by a backup.

["life", incarnation, cluster id]            at each start
["claim", term, master, record, configured]  whom it follows; ``configured`` was imq.cluster.masterbroker then
["master", name, incarnation]                the instance of the master that was greeted last
["record", text]                             the whole record, see ``backup``; replaces all entries before
["past", [[type, name], ...]]   right after the record: what it does not have any more and may still be here
["entry", digest, [number, term, kind, key, attributes]]
["offer", term, master, record, text]        a record that is this broker's if the master says so
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from raybroker.cluster.backup import dump, load
from raybroker.cluster.change_record import Change, ChangeRecord, Entry, canonical_bytes
from raybroker.cluster.term import Leadership, restored_term
from raybroker.model.errors import BrokerError, ConfigError, StoreDamagedError


@dataclass(frozen=True, slots=True)
class SavedOffer:
    """A record, and the term that it is meant for."""

    claim: Leadership
    record: ChangeRecord


@dataclass(slots=True)
class Saved:
    """``claim`` None: never followed anybody.  ``instance``: name and incarnation of the master last greeted."""

    incarnation: int = 0
    cluster: str = ""
    claim: Leadership | None = None
    configured: str = ""
    instance: tuple[str, int] = ("", 0)
    record: ChangeRecord | None = None
    offer: SavedOffer | None = None

    def frames(self) -> tuple[bytes, ...]:
        """Return the frames that hold all of it."""
        frames = [life_frame(self.incarnation, self.cluster)]
        if self.claim is not None:
            frames.append(claim_frame(self.claim, self.configured))
        if self.instance[0]:
            frames.append(master_frame(*self.instance))
        if self.record is not None:
            frames.append(canonical_bytes(["record", dump(self.record).decode("ascii")]))
            if self.record.base_state.past:
                frames.append(canonical_bytes(["past", sorted(map(list, self.record.base_state.past))]))
        if self.offer is not None:
            frames.append(offer_frame(self.offer))
        return tuple(frames)


_ENTRY: Final = b'["entry","'


def life_frame(incarnation: int, cluster: str) -> bytes:
    return canonical_bytes(["life", incarnation, cluster])


def claim_frame(claim: Leadership, configured: str) -> bytes:
    return canonical_bytes(["claim", claim.term, claim.master, claim.record, configured])


def master_frame(name: str, incarnation: int) -> bytes:
    return canonical_bytes(["master", name, incarnation])


def entry_frame(entry: Entry) -> bytes:
    return _ENTRY + entry.digest.encode("ascii") + b'",' + entry.body() + b"]"


def offer_frame(offer: SavedOffer) -> bytes:
    claim = offer.claim
    return canonical_bytes(["offer", claim.term, claim.master, claim.record, dump(offer.record).decode("ascii")])


def load_frames(frames: Iterable[bytes]) -> Saved:
    """What the frames of a record file say; raises StoreDamagedError naming the frame."""
    saved = Saved()
    for index, frame in enumerate(frames):
        try:
            _replay(saved, json.loads(frame))
        except (BrokerError, ValueError, TypeError, IndexError, AssertionError) as error:
            raise StoreDamagedError(f"frame {index} of the configuration record cannot be used: {error}") from None
    return saved


def _replay(saved: Saved, found: list[Any]) -> None:
    match found:
        case ["entry", str(digest), [int(number), int(term), *change]]:
            if saved.record is None:
                raise ValueError("an entry without a record")
            saved.record.accept(Entry(number, term, Change.from_canonical(change), digest))
        case ["life", int(incarnation), str(cluster)]:
            saved.incarnation, saved.cluster = incarnation, cluster
        case ["claim", int(term), str(master), str(record), str(configured)]:
            saved.claim, saved.configured = Leadership(term, master, record), configured
        case ["master", str(name), int(incarnation)]:
            saved.instance = name, incarnation
        case ["record", str(text)]:
            saved.record = load(text.encode())
        case ["past", [*keys]]:
            if saved.record is None:
                raise ValueError("a past without a record")
            saved.record.remember(tuple(str(part) for part in key) for key in keys)
        case ["offer", int(term), str(master), str(record), str(text)]:
            saved.offer = SavedOffer(Leadership(term, master, record), load(text.encode()))
        case _:
            raise ValueError(f"{str(found)[:80]} is not known")


def backed_up(frames: Iterable[bytes]) -> bytes:
    """A backup of the record that the frames have, compressed.  Raises ConfigError when there is none."""
    saved = load_frames(frames)
    if saved.record is None:
        raise ConfigError("this broker has no configuration change record yet")
    return dump(saved.record.compress())


def restored(
    frames: Iterable[bytes], backup: bytes, *, name: str, master: str, new_id: str, cluster: str = ""
) -> tuple[bytes, ...]:
    """The frames of broker ``name`` after restoring a backup: it is the master then, of a new term.

    ``master``: the configured one. ``cluster``: the configured id. All brokers are stopped, and follow at their next
    start; what was changed since the backup is lost. Raises ConfigError for a backup of another cluster and when the
    broker is not to be the master, StoreDamagedError for a backup that is damaged.
    """
    if master != name:
        raise ConfigError(
            f"imq.cluster.masterbroker is {master or 'not set'}: restore the record on the broker that is to be the"
            f" master, or set the property to {name} on all brokers first"
        )
    saved = load_frames(frames)
    record = load(backup, cluster=cluster or saved.cluster)
    term = restored_term(record.term, saved.claim.term if saved.claim is not None else 0)
    short = record.compress()
    short.forget_past()  # Destinations that the restored record lacks stay: see broker.cluster.record_application.
    short.id, short.term = new_id, term
    short.cluster = record.cluster or cluster or saved.cluster
    fresh = Saved(saved.incarnation, short.cluster, Leadership(term, name, new_id), master, record=short)
    return fresh.frames()
