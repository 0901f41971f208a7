"""What a host releases to whom when connections are full, stores are slow or broken, and clients are careless.

Each of these was found by the simulation; here is the shortest way to each.
"""

from __future__ import annotations

from raybroker.core.outcome import Refused
from raybroker.model.errors import StoreError
from tests.unit.engine.rig import Client, Rig


def running(*, cache_bytes: int = 1 << 20) -> tuple[Rig, Client, int, Client]:
    """A queue, a connection with a producer, and one for consumers."""
    rig = Rig(raybroker__memory__block_cache_bytes=cache_bytes)
    rig.create()
    sender = Client(rig)
    return rig, sender, sender.producer(), Client(rig)


def delivered(client: Client) -> list[tuple[int, int, int]]:
    """(tag, attempt, messages) of each delivery."""
    return [(tag, attempt, block.count) for _, _, tag, attempt, block in client.peer.take("deliver")]


def test_a_volatile_message_comes_after_the_answer_to_the_release_that_gave_it_back() -> None:
    rig, sender, producer, receiver = running()
    consumer = receiver.consumer()
    sender.send(producer, "a")
    sender.send(producer, "v", persistent=False)
    receiver.session.call(5, "release", {"handle": consumer, "epoch": receiver.epochs[consumer], "credit": 100})
    rig.sync()
    told = receiver.peer.take("deliver", "released")
    at = next(i for i, row in enumerate(told) if row[0] == "released")
    next_tag = told[at][3]
    assert all(row[2] < next_tag for row in told[:at])
    again = told[at + 1 :]
    assert sorted(row[2:4] for row in again) == [(next_tag, 2), (next_tag + 1, 2)], "both come again, with new tags"


def test_deliveries_decided_before_a_release_are_not_written_after_it() -> None:
    rig, sender, producer, receiver = running()
    receiver.peer.full = True
    consumer = receiver.consumer()
    sender.send(producer, "a", "b", "c")
    rig.sync()
    receiver.session.call(5, "release", {"handle": consumer, "epoch": receiver.epochs[consumer], "credit": 100})
    receiver.peer.full = False
    receiver.session.writable()
    rig.sync()
    assert delivered(receiver) == [(4, 2, 3)]


def test_a_consumer_that_acknowledges_what_it_never_got_harms_nobody() -> None:
    rig, sender, producer, receiver = running(cache_bytes=0)
    receiver.peer.full = True
    consumer = receiver.consumer()
    sender.send(producer, "a", "b", "c")
    rig.sync()
    receiver.session.acknowledge(consumer, receiver.epochs[consumer], 9, [(1, 3)])
    rig.sync()
    receiver.peer.full = False
    receiver.session.writable()
    assert receiver.peer.take("deliver", "acked") == [("acked", 9, 0)]
    assert not rig.failures


def test_a_release_on_a_destroyed_queue_is_answered() -> None:
    rig, _, _, receiver = running()
    consumer = receiver.consumer()
    rig.host.removal.destroy("q", lambda: None)
    code = receiver.fails("release", handle=consumer, epoch=receiver.epochs[consumer], credit=100)
    assert code == "invalid_destination"


def test_a_store_that_cannot_read_any_more_stops_the_host() -> None:
    rig, sender, producer, _ = running(cache_bytes=0)
    sender.send(producer, "a")
    rig.sync()
    rig.store.close()
    other = Client(rig)
    other.session.call(1, "open_consumer", {"handle": 1, "name": "q", "flow": "prefetch", "limit": 1, "no_ack": False})
    entries, done = rig.committer.waiting.pop()
    assert entries
    done()
    assert isinstance(rig.failures[0], StoreError)


def test_a_full_disk_refuses_new_messages_and_confirms_those_it_has() -> None:
    rig, sender, producer, _ = running()
    sender.send(producer, "a", "b")
    rig.store.has_room = lambda nbytes: False  # type: ignore[method-assign]
    sender.send(producer, "a", "b", first=1)
    sender.send(producer, "c")
    assert sender.peer.take("sent") == []
    rig.sync()
    first, again, new = sender.peer.take("sent")
    assert first[4] == again[4] == ()
    assert [(row.start, row.end, row.code) for row in new[4]] == [(0, 1, "store_full")]


def test_what_an_old_connection_still_had_in_its_buffers_is_not_stored_again() -> None:
    rig, old, old_producer, _ = running()
    new = Client(rig)
    producer = new.producer()
    new.send(producer, "a")
    new.send(producer, "b")
    rig.sync()
    old.send(old_producer, "a")
    old.session.close()
    rig.sync()
    assert rig.held() == 2
    assert len(new.peer.take("sent")) == 2
    assert old.peer.take("sent") == []


def test_a_producer_that_comes_back_needs_no_second_place() -> None:
    rig, _, _, _ = running()
    rig.host.administration.update("q", {"maxNumProducers": 1}, lambda: None)
    Client(rig).producer(number=7)
    assert Client(rig).fails("open_producer", handle=1, name="q", producer=8) == "resource_allocation"


def test_a_block_for_a_handle_that_is_gone_is_refused() -> None:
    rig, sender, producer, _ = running()
    rig.host.removal.destroy("q", lambda: None)
    sender.send(producer, "a", "b")
    ((_, handle, first, count, refused),) = sender.peer.take("sent")
    assert (handle, first, count) == (producer, 1, 2)
    assert [row[:3] for row in refused] == [Refused(0, 2, "invalid_destination", "")[:3]]


def test_nothing_is_told_before_it_is_durable() -> None:  # P-05
    rig, sender, producer, receiver = running()
    receiver.consumer()
    sender.send(producer, "a")
    assert sender.peer.take("sent") == []
    assert receiver.peer.take("deliver") == []
    rig.sync()
    assert len(sender.peer.take("sent")) == 1
    assert delivered(receiver) == [(1, 1, 1)]


def test_a_store_that_fails_stops_the_host_and_says_nothing_more() -> None:  # P-05
    rig, sender, producer, _ = running()
    sender.send(producer, "a")
    rig.host.executor.fail(StoreError("no disk"))
    rig.sync()
    assert sender.peer.take("sent") == []
    assert sender.peer.take("close") == [("close", "store", "no disk")]
    assert sender.fails("open_producer", handle=9, name="q", producer=8) == "store"


# ---- restart of auto-created queues --------------------------------------------------------------------------------


def consumed_and_restarted() -> Rig:
    """An auto-created queue took a message, a consumer settled it, and the host died before the producer heard."""
    rig = Rig(imq__autocreate__reaptime=120)
    rig.create(auto_created=True)
    sender, receiver = Client(rig), Client(rig)
    producer, consumer = sender.producer(), receiver.consumer()
    sender.send(producer, "a")
    assert receiver.got() == ["a"]
    receiver.ack(consumer, "a")
    rig.sync()
    return rig.restart()


def test_an_empty_auto_created_queue_is_not_there_after_a_restart_but_recognises_a_retry() -> None:  # D-22
    rig = consumed_and_restarted()
    assert ("queue", "q") not in rig.host.registry.destinations
    rig.create(auto_created=True)
    sender = Client(rig)
    sender.send(sender.producer(), "a")
    rig.sync()
    assert sender.peer.take("sent") == [("sent", 1, 1, 1, ())]
    assert rig.held() == 0


def test_an_empty_auto_created_queue_is_forgotten_after_its_reap_time() -> None:  # D-22
    rig = consumed_and_restarted()
    rig.tick(119_999)
    assert rig.host.registry.dormant
    rig.tick(1)
    assert not rig.host.registry.dormant
    again = rig.restart()
    assert not again.host.registry.dormant
    assert not again.host.registry.destinations
