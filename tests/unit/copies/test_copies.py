"""Three copies over real sockets and folders: who leads, what is confirmed, what a fault leaves."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from raybroker.copies import copy as copying
from raybroker.copies.copy import Copy, CopyMeans, CopyPlace
from raybroker.copies.link import CopyLink, LinkEvents, LinkIdentity, LinkTls, _Encryption
from raybroker.copies.links import WAITING_MS, CopyTls
from raybroker.copies.replicated_store import ReplicatedStore
from raybroker.model.blocks.record import LogEntry
from raybroker.model.errors import ConfigError, StoreError
from raybroker.replication import events as ev
from raybroker.replication.leading import LEASE_MS, LEASE_WAIT_MS
from raybroker.replication.positions import BEGINNING
from raybroker.replication.replica import HEARD_MS, TICK_MS, UNLINKED_MS, Replica
from raybroker.replication.replica_set import MemberChange
from raybroker.security.keystore import self_signed
from raybroker.security.tls import KeyFiles, first_certificate, server_context
from raybroker.store.journal.format import pack_entries
from tests.unit.copies.disks import block, checkpoint, live
from tests.unit.copies.rig import SECRET, SEGMENT, WAIT_S, Group, Node, until

Make = Callable[..., Group]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Group] = []

    def group(**options: int) -> Group:
        made.append(Group(tmp_path, **options))
        return made[-1]

    yield group
    for one in made:
        one.close()


def append(node: Node, *entries: LogEntry) -> int:
    return node.runs.append(pack_entries(entries))


def append_or_fail(node: Node, *entries: LogEntry) -> None:
    with suppress(StoreError):
        append(node, *entries)


def confirmed(node: Node, *entries: LogEntry) -> None:
    index = append(node, *entries)
    until(lambda: node.runs.released >= index, f"entry {index} is released: {node.runs.status()}")


def blocks(node: Node) -> set[int]:
    return set(live(node.runs.journal).get(1, ()))


def test_what_a_majority_has_is_released(make: Make) -> None:
    group = make()
    leader = group.led()
    confirmed(leader, block(1))
    group.agree()
    assert [blocks(node) for node in group.nodes] == [{1}] * 3
    status = leader.runs.status()
    assert (status.role, status.leader, status.lease) == ("LEADER", leader.runs.id, status.lease)
    assert sorted(one.copy for one in status.copies) == sorted(node.runs.id for node in group.nodes)
    assert all(one.behind == 0 for one in status.copies)
    until(lambda: all(one.connected for one in leader.runs.status().copies), "there is a link to each")


def test_nothing_is_released_without_a_majority(make: Make) -> None:
    group = make()
    leader = group.led()
    others = [node for node in group.nodes if node is not leader]
    for node in others:
        node.kill()
    index = append(leader, block(1))
    time.sleep(0.7)
    assert leader.runs.released < index
    others[0].begin()
    until(lambda: leader.runs.released >= index, "the entry is released when there is a majority again")


def test_one_of_three_may_be_away(make: Make) -> None:
    group = make()
    leader = group.led()
    away = next(node for node in group.nodes if node is not leader)
    away.kill()
    for ordinal in range(1, 20):
        confirmed(leader, block(ordinal))
    away.begin()
    group.agree()
    assert blocks(away) == set(range(1, 20))


def test_two_of_five_may_be_away_and_with_min_in_sync_of_four_one(make: Make) -> None:
    group = make(nodes=5, voters=5, in_sync=4)
    leader = group.led()
    confirmed(leader, block(1))
    first, second, *_ = [node for node in group.nodes if node is not leader]
    first.kill()
    confirmed(leader, block(2))
    second.kill()
    index = append(leader, block(3))
    until(lambda: leader.runs.status().committed >= index, "a majority of three makes it final")
    time.sleep(0.3)
    assert leader.runs.released < index, "nobody is told before a fourth has it"
    second.begin()
    until(lambda: leader.runs.released >= index, "the fourth has it")
    leader.kill()
    first.begin()
    confirmed(group.led(), block(4))
    leader.begin()
    group.agree()
    assert [blocks(node) for node in group.nodes] == [{1, 2, 3, 4}] * 5


def test_the_lease_ends_without_answers_and_comes_again(make: Make) -> None:
    group = make()
    leader = group.led()
    group.pass_time(LEASE_WAIT_MS)
    until(leader.runs.may_dispatch, "the lease of a new leader begins")
    group.isolate(leader.number)
    cut_ms = leader.runs.now_ms()
    group.pass_time(LEASE_MS // 2)
    assert leader.runs.now_ms() < leader.runs._host.lease[1], "an answer counts from when it was asked for"
    group.pass_time(LEASE_MS // 2)
    until(lambda: not leader.runs.may_dispatch(), "the lease ends")
    _, until_ms = leader.runs._host.lease
    assert until_ms <= cut_ms + LEASE_MS, "nothing that was asked after the cut was answered"
    group.mend()
    until(leader.runs.may_dispatch, "the lease comes again")


def test_the_end_of_a_leaders_process_is_noticed_by_its_connections(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = make()
    leader = group.led()
    group.agree()
    lost: set[tuple[str, str]] = set()
    old = Replica.step

    def step(replica: Replica, event: ev.ReplicaEvent, now_ms: int) -> list[ev.ReplicaAction]:
        if isinstance(event, ev.LinkLost):
            lost.add((replica.me, event.copy))
        return old(replica, event, now_ms)

    monkeypatch.setattr(Replica, "step", step)
    gone = leader.runs.id
    leader.kill()
    others = [node.runs for node in group.nodes if node is not leader]
    until(lambda: {(copy.id, gone) for copy in others} <= lost, "the others are told")
    group.pass_time(UNLINKED_MS)
    until(lambda: not any(copy.is_led() for copy in others), "nobody is heard to lead")


def test_a_copy_that_comes_back_is_not_asked_for_a_vote_in_an_election_that_is_over(make: Make) -> None:
    group = make()
    away = group.nodes[2]
    away.kill()
    leader = group.led([0, 1])
    confirmed(leader, block(1))
    group.pass_time(WAITING_MS + 1)
    away.begin()
    group.agree()
    assert away.runs.status().vote.voted_ms_ago == -1
    assert leader.runs.status().vote.voted_ms_ago > WAITING_MS


def test_a_leader_that_was_cut_off_is_followed_by_another_and_loses_what_nobody_confirmed(make: Make) -> None:
    group = make()
    old = group.led()
    confirmed(old, block(1))
    group.agree()
    group.isolate(old.number)
    lost = append(old, block(2))
    others = [node.number for node in group.nodes if node is not old]
    group.pass_time(HEARD_MS + 100)  # The others have heard it until now.
    new = group.led(others)
    confirmed(new, block(3))
    assert old.runs.released < lost
    group.mend()
    until(lambda: not old.runs.leads, "the old leader hears of the new one")
    until(lambda: any(told.startswith("ended") for told in old.told), "its host is told")
    group.agree()
    assert [blocks(node) for node in group.nodes] == [{1, 3}] * 3
    with pytest.raises(StoreError, match="leads no more"):
        append(old, block(4))


def test_a_power_cut_of_all_loses_nothing_that_was_confirmed(make: Make) -> None:
    group = make()
    leader = group.led()
    for ordinal in range(1, 12):
        confirmed(leader, block(ordinal, 3000))
    for node in group.nodes:
        node.kill()
    for node in group.nodes:
        node.begin()
    leader = group.led()
    assert blocks(leader) == set(range(1, 12))
    confirmed(leader, block(12))
    group.agree()


def test_a_copy_that_is_far_behind_gets_the_files(make: Make) -> None:
    group = make(kept=64 << 10)
    leader = group.led()
    confirmed(leader, block(1))
    away = next(node for node in group.nodes if node is not leader)
    away.kill()
    for ordinal in range(2, 60):
        confirmed(leader, block(ordinal, 8000))
    away.begin()
    group.agree()
    assert blocks(away) == set(range(1, 60))
    assert (away.folder / "log-2").exists()
    for ordinal in range(1, 60):
        assert away.runs.journal.read(1, ordinal) == leader.runs.journal.read(1, ordinal)
    confirmed(leader, block(60))
    group.agree()


def test_a_removed_disk_is_replaced_by_a_copy_that_learns(make: Make) -> None:
    group = make()
    leader = group.led()
    for ordinal in range(1, 40):
        confirmed(leader, block(ordinal, 5000))
    gone = next(node for node in group.nodes if node is not leader)
    old = gone.runs.id
    gone.kill()
    gone.wipe()
    gone.begin()
    assert gone.runs.id != old
    assert not gone.runs.report().fit
    for request, (change, copy) in enumerate(
        [(MemberChange.ADD, gone.runs.id), (MemberChange.PROMOTE, gone.runs.id), (MemberChange.REMOVE, old)], 1
    ):

        def asked(request: int = request, change: MemberChange = change, copy: str = copy) -> bool:
            done = f"changed {request} "
            if done not in leader.told:
                leader.runs.change(change, copy, request)
                end = time.monotonic() + 0.3
                while done not in leader.told and time.monotonic() < end:
                    time.sleep(0.005)
            return done in leader.told

        until(asked, f"{change} is done: {leader.told}")
    group.agree()
    assert set(leader.runs.status().members.voters) == {node.runs.id for node in group.nodes}
    assert blocks(gone) == set(range(1, 40))
    assert gone.runs.report().fit


def test_a_damaged_copy_has_no_vote_until_a_leader_has_healed_it(make: Make) -> None:
    group = make()
    leader = group.led()
    for ordinal in range(1, 30):
        confirmed(leader, block(ordinal, 2000))
    group.agree()
    hurt = next(node for node in group.nodes if node is not leader)
    hurt.kill()
    segment = hurt.folder / "log-1" / "segment-000001"
    with segment.open("r+b") as raw:
        raw.seek(512)
        data = raw.read(64)
        raw.seek(512)
        raw.write(bytes(byte ^ 1 for byte in data))
    hurt.begin()
    group.agree()
    until(lambda: hurt.runs.report().fit, "it is healed")
    until(lambda: blocks(hurt) == set(range(1, 30)), "its disk has it all")


def test_a_full_disk_of_one_copy_stops_nobody(make: Make) -> None:
    group = make()
    leader = group.led()
    full = next(node for node in group.nodes if node is not leader)
    full.io.full = True
    for ordinal in range(1, 60):
        confirmed(leader, block(ordinal, 8000))
    until(lambda: full.runs.status().trouble, "it says that its disk is full")
    full.io.full = False
    group.agree()
    assert full.runs.status().trouble == ""


def test_a_copy_that_has_ended_is_not_asked_to_lead(make: Make) -> None:
    leader = make().led()
    assert leader.runs.report().fit
    leader.runs.shut_down()
    assert not leader.runs.report().fit


def test_a_leader_takes_no_batch_that_its_disk_has_no_room_for(make: Make) -> None:
    from raybroker.model.errors import StoreFullError

    group = make()
    leader = group.led()
    store = ReplicatedStore(leader.runs)
    leader.io.full = True
    last, ordinal = leader.runs.report().last, 0

    def fill() -> None:
        nonlocal last, ordinal
        while ordinal < 100:
            ordinal += 1
            store.commit([block(ordinal, 20_000)])
            last = leader.runs.report().last

    with pytest.raises(StoreFullError):
        fill()
    assert leader.runs.report().last == last
    leader.io.full = False
    store.commit([block(ordinal, 20_000)])
    group.agree()


def test_blocks_that_are_dead_at_the_leader_go_at_the_others(make: Make) -> None:
    group = make()
    leader = group.led()
    store = ReplicatedStore(leader.runs)
    for ordinal in range(1, 50):
        store.commit([block(ordinal, 8000)])
    store.free(1, range(1, 40))
    confirmed(leader, checkpoint(b"forty to forty-nine are owed"))
    until(lambda: all(blocks(node) == set(range(40, 50)) for node in group.nodes), "they are free everywhere")
    segments = [node.runs.journal.stats().segments for node in group.nodes]
    until(lambda: all(node.runs.journal.stats().segments <= max(segments) for node in group.nodes), "space is back")


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_a_copy_that_was_away_learns_which_blocks_are_dead(
    make: Make, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "TOLD_SPANS_MAX", at_a_time)
    group = make()
    leader = group.led()
    store = ReplicatedStore(leader.runs)
    for ordinal in range(1, 10):
        store.commit([block(ordinal), block(ordinal, destination=3)])
    group.agree()
    away = next(node for node in group.nodes if node is not leader)
    away.kill()
    store.free(1, [2, 3, 7])
    store.free(3, [1, 5, 9])
    confirmed(leader, block(10))
    time.sleep(0.3)
    away.begin()
    left = {1: [1, 4, 5, 6, 8, 9, 10], 3: [2, 3, 4, 6, 7, 8]}
    until(lambda: live(away.runs.journal) == left, "it is told what lives")


def test_a_host_that_leads_finds_what_was_stored(make: Make) -> None:
    group = make()
    leader = group.led()
    for ordinal in range(1, 6):
        confirmed(leader, block(ordinal))
    group.agree()
    leader.kill()
    group.pass_time(HEARD_MS + 100)
    new = group.led([node.number for node in group.nodes if node is not leader])
    store = ReplicatedStore(new.runs)
    found = list(store.recover())
    assert [(entry.destination, entry.ordinal) for entry in found] == [(1, ordinal) for ordinal in range(1, 6)]
    store.commit([block(6)])
    assert store.read(1, 6) == bytes([6]) * 100 + b"end"


def test_a_leader_that_reads_its_journal_for_long_goes_on_leading(make: Make) -> None:
    group = make()
    leader = group.led()
    for ordinal in range(1, 6):
        confirmed(leader, block(ordinal))
    group.pass_time(LEASE_WAIT_MS)
    until(leader.runs.may_dispatch, "its lease begins")
    found = leader.runs.recover_runs()
    first = next(found)
    group.pass_time(LEASE_MS + 200)
    assert not leader.runs.may_dispatch()
    until(leader.runs.may_dispatch, "it is answered meanwhile")
    assert [first, *found]
    confirmed(leader, block(6))


def test_what_others_say_is_heard_while_a_host_saves_what_it_appended(make: Make) -> None:
    group = make()
    leader = group.led()
    leader.io.quick.clear()
    commit = threading.Thread(target=append, args=(leader, block(1)))
    commit.start()
    assert leader.io.stuck.wait(WAIT_S)
    other = next(node.runs.id for node in group.nodes if node is not leader)
    heard = threading.Thread(target=leader.runs._take_event, args=(ev.LinkLost(other),))
    heard.start()
    heard.join(WAIT_S / 2)
    assert not heard.is_alive()
    assert commit.is_alive()
    leader.io.quick.set()
    commit.join()
    group.agree()
    assert [blocks(node) for node in group.nodes] == [{1}] * 3


def test_a_leader_whose_disk_hangs_is_followed_by_another(make: Make) -> None:
    group = make()
    old = group.led()
    confirmed(old, block(1))
    group.agree()
    old.io.quick.clear()
    commit = threading.Thread(target=append_or_fail, args=(old, block(2)))
    commit.start()
    assert old.io.stuck.wait(WAIT_S)
    others = [node for node in group.nodes if node is not old]
    time.sleep(2 * TICK_MS / 1000)  # Its next tick waits for the disk, and nothing is said of its lead from then on.
    group.pass_time(HEARD_MS + 100)
    new = group.led([node.number for node in others])
    confirmed(new, block(3))
    old.io.quick.set()
    commit.join()
    group.agree()
    assert [blocks(node) for node in group.nodes] == [{1, 2, 3}] * 3, "the others had the batch: it is in the log"


def test_the_secret_opens_the_way_and_nothing_else_does(make: Make, tmp_path: Path) -> None:
    group = make()
    leader = group.led()
    stranger = Copy(CopyPlace(tmp_path / "s", "nodeX", "broker/host"), b"another secret")
    address = stranger.serve()
    assert leader.address is not None
    stranger.know({leader.runs.id: leader.address})
    leader.runs.know({stranger.id: address})
    stranger.lead()
    leader.runs._links.send(stranger.id, [b"\0\0\0\0\1"])
    time.sleep(0.5)
    assert stranger.id not in leader.runs._links.connected()
    assert not stranger._links.connected()
    stranger.shut_down()
    other = Copy(CopyPlace(tmp_path / "o", "nodeY", "broker/other"), SECRET)
    other.serve()
    other.know({leader.runs.id: leader.address})
    other._links.send(leader.runs.id, [b"\0\0\0\0\1"])
    time.sleep(0.3)
    assert not other._links.connected()
    other.shut_down()


def tls_of(directory: Path, name: str) -> CopyTls:
    path = directory / name
    path.write_bytes(self_signed([name], days=30, now=datetime.now(UTC)))
    path.chmod(0o600)
    context, shown = server_context(KeyFiles(path)), first_certificate(path)
    outside = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outside.check_hostname, outside.verify_mode = False, ssl.CERT_NONE
    return CopyTls(lambda: LinkTls(context, shown), lambda: LinkTls(outside))


def test_links_are_encrypted_and_prove_themselves_by_the_certificate(tmp_path: Path) -> None:
    copies: list[Copy] = []
    for number in range(3):
        place = CopyPlace(tmp_path / f"c{number}", f"n{number}", "broker/host", segment_bytes=SEGMENT)
        copies.append(Copy(place, SECRET, means=CopyMeans(tls=tls_of(tmp_path, f"k{number}"))))
    addresses = {copy.id: copy.serve() for copy in copies}
    for copy in copies:
        copy.know(addresses)
        copy.found(addresses)

    def led() -> bool:
        if not copies[0].leads:
            copies[0].lead()
        return copies[0].released > 0

    until(led, "it leads, over TLS")
    index = copies[0].append(pack_entries([block(1, 3 << 20)]))
    until(lambda: copies[0].released >= index, "a large batch goes over TLS")
    until(lambda: all(copy.report().last == copies[0].report().last for copy in copies), "all have it")
    plain = Copy(CopyPlace(tmp_path / "p", "n9", "broker/host"), SECRET)
    plain.serve()
    plain.know(addresses)
    plain._links.send(copies[0].id, [b"\0\0\0\0\1"])
    time.sleep(0.3)
    assert not plain._links.connected(), "whoever does not encrypt is not let in"
    for copy in (*copies, plain):
        copy.shut_down()


def test_another_certificate_in_between_is_noticed(tmp_path: Path) -> None:
    """Somebody in between shows a certificate of his own, and carries the words of both sides on."""
    identity = [LinkIdentity(name, "key", SECRET, os.urandom) for name in ("a", "b")]
    closed: list[str] = []
    events = LinkEvents(
        lambda link: closed.append("opened"),
        lambda link, kind, payload: None,
        lambda link, reason: closed.append(reason),
        lambda link: None,
    )
    pairs = [socket.socketpair(), socket.socketpair()]
    real, other = tls_of(tmp_path, "real"), tls_of(tmp_path, "other")
    ends = [
        CopyLink(pairs[0][0], identity[0], events, 0, "b", real.connecting()),
        CopyLink(pairs[1][1], identity[1], events, 0, "", real.listening()),
    ]
    between = [
        _Encryption(other.listening()),
        _Encryption(other.connecting()),
    ]
    ends[0].greet()
    pairs[1][0].sendall(b"".join(between[1].encrypt([])))
    for sock in (pairs[0][1], pairs[1][0]):
        sock.settimeout(0.05)
    for _ in range(20):
        if all(link.over for link in ends):
            break
        for sock, mine, theirs, out in (
            (pairs[0][1], between[0], between[1], pairs[1][0]),
            (pairs[1][0], between[1], between[0], pairs[0][1]),
        ):
            with suppress(TimeoutError, OSError):
                said, answer = mine.decrypt(sock.recv(1 << 16))
                if answer:
                    sock.sendall(b"".join(answer))
                if said and (carried := theirs.encrypt([said])):
                    out.sendall(b"".join(carried))
        for link in ends:
            if not link.over:
                link.readable(0)
    assert "opened" not in closed
    assert any("does not have the secret" in reason for reason in closed)


def test_a_log_is_begun_once(make: Make) -> None:
    group = make()
    ids = [node.runs.id for node in group.nodes]
    group.nodes[0].runs.found(ids)  # Told again before anything is in the log, it changes nothing.
    group.led()
    until(lambda: group.nodes[0].runs.report().last != BEGINNING, "it has something of the log")
    with pytest.raises(ConfigError, match="is not new"):
        group.nodes[0].runs.found([*ids[:2], "somebody"])
    with pytest.raises(ConfigError, match="is not new"):
        group.nodes[0].runs.found(ids)


def test_appends_of_one_committer_and_events_of_the_links_go_side_by_side(make: Make) -> None:
    group = make()
    leader = group.led()
    done: list[int] = []

    def commit() -> None:
        done.extend(append(leader, block(ordinal)) for ordinal in range(1, 200))

    thread = threading.Thread(target=commit)
    thread.start()
    while thread.is_alive():
        leader.runs.status()
        leader.runs.report()
    thread.join()
    assert done == list(range(done[0], done[0] + 199))
    group.agree()
