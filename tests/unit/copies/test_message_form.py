"""Messages between copies come out as they went in, and nothing else comes out."""

from __future__ import annotations

import pytest

from raybroker.copies import message_form as form
from raybroker.copies.message_form import HEAD, Freed, ImageBegins, ImageEnds, ImagePart, ImageTaken, Living
from raybroker.model.errors import ProtocolError
from raybroker.replication import messages as m
from raybroker.replication.positions import BEGINNING, EntryKind, Term, following
from raybroker.replication.replica_set import ReplicaSet

TERM, LATER = Term(3, 2**63 + 5), Term(4, 1)
FIRST = following(BEGINNING, TERM, EntryKind.LEADER, ())
SECOND = following(FIRST.at, TERM, EntryKind.BATCH, (b"one ", memoryview(b"two"), bytearray(b" three")))

MESSAGES = [
    m.AskPromise(TERM, SECOND.at),
    m.AskPromise(LATER, SECOND.at, TERM),
    m.TakeLead(TERM, 2**63 + 1),
    m.Promised(TERM),
    m.PromiseRefused(TERM, LATER, "its leader is heard – ja"),
    m.Append(TERM, FIRST.at, (), 1, 123456, 2, 0),
    m.Appended(TERM, 7, 99, 3),
    m.Behind(TERM, SECOND.at, FIRST.at, 99, 3, 2),
    m.LogSnapshot(TERM, SECOND.at, ReplicaSet(("a", "b"), ("c",), 2), (b"all that is owed",), 99, 3, 1),
    Freed(9, 4, ((1, 5), (7, 7))),
    Living(9, (0, 0), (3, 2**40), {1: ((1, 5),), 3: ((2, 2), (4, 2**40))}),
    ImageBegins(2**32 - 1),
    ImagePart(5, "segment-000001", 2**40, b"data"),
    ImageEnds(5, b"{}"),
    ImageTaken(5, "no room"),
]


def carried(message: m.CopyMessage | form.ShellMessage) -> m.CopyMessage | form.ShellMessage:
    data = b"".join(form.encode(message))
    nbytes, kind = HEAD.unpack_from(data)
    assert len(data) == HEAD.size + nbytes
    return form.decode(kind, memoryview(data)[HEAD.size :])


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message: m.CopyMessage | form.ShellMessage) -> None:
    assert carried(message) == message


def test_entries_keep_every_byte() -> None:
    sent = m.Append(TERM, BEGINNING, (FIRST, SECOND), 1, 5, 0, 0)
    got = carried(sent)
    assert isinstance(got, m.Append)
    assert [(e.at, e.kind, b"".join(e.body), e.nbytes) for e in got.entries] == [
        (e.at, e.kind, b"".join(e.body), e.nbytes) for e in sent.entries
    ]


@pytest.mark.parametrize("message", MESSAGES[:11], ids=lambda message: type(message).__name__)
def test_what_is_cut_off_is_refused(message: m.CopyMessage | form.ShellMessage) -> None:
    data = b"".join(form.encode(message))
    _, kind = HEAD.unpack_from(data)
    whole = memoryview(data)[HEAD.size :]
    if isinstance(message, m.LogSnapshot):
        whole = whole[: -len(b"all that is owed")]  # Any end of what is opaque is one.
    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            form.decode(kind, whole[:end])


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ProtocolError, match="kind 99"):
        form.decode(99, memoryview(b""))
