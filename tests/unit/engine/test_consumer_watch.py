"""Whether a destination has consumers, told to those who asked (R-15), and what producers are told to check (R-17)."""

from __future__ import annotations

from tests.unit.engine.rig import Client, Rig


def told(client: Client) -> list[tuple[int, bool]]:
    """(handle, ready) of every consumer event since the last time."""
    client.rig.sync()
    return [(data["handle"], data["ready"]) for _, name, data in client.peer.take("event") if name == "consumers"]


def watch(client: Client, handle: int, name: str = "q", kind: str = "queue") -> bool:
    answer: bool = client.ok("watch_consumers", handle=handle, name=name, type=kind)["ready"]
    return answer


def test_the_first_consumer_and_the_last_one_are_told_and_nobody_between() -> None:
    rig = Rig()
    rig.create()
    watcher, client = Client(rig), Client(rig)
    assert watch(watcher, 1) is False
    first = client.consumer()
    assert told(watcher) == [(1, True)]
    second = client.consumer()
    client.ok("close_consumer", handle=first)
    assert told(watcher) == []
    assert watch(watcher, 2) is True
    client.ok("close_consumer", handle=second)
    assert told(watcher) == [(1, False), (2, False)]


def test_consumers_of_a_lost_connection_are_gone_and_a_lost_watcher_is_told_nothing() -> None:
    rig = Rig()
    rig.create("t", "topic")
    watcher, other, client = Client(rig), Client(rig), Client(rig)
    client.consumer("t", "topic")
    assert [watch(one, 1, "t", "topic") for one in (watcher, other)] == [True, True]
    other.session.close()
    client.session.close()
    assert told(watcher) == [(1, False)]
    assert told(other) == []


def test_a_watch_that_was_ended_is_told_nothing_and_its_handle_is_free() -> None:
    rig = Rig()
    rig.create()
    watcher, client = Client(rig), Client(rig)
    watch(watcher, 1)
    assert watcher.fails("watch_consumers", handle=1, name="q", type="queue") == "protocol"
    watcher.ok("unwatch_consumers", handle=1)
    watcher.ok("unwatch_consumers", handle=1)
    client.consumer()
    assert told(watcher) == []
    assert watch(watcher, 1) is True


def test_a_watch_ends_with_its_destination_and_keeps_nothing_of_it() -> None:
    rig = Rig()
    rig.create()
    watcher = Client(rig)
    watch(watcher, 1)
    rig.host.removal.destroy("q", lambda: None, "queue")
    rig.sync()
    assert [name for _, name, _ in watcher.peer.take("event")] == ["destroyed"]
    assert watcher.fails("watch_consumers", handle=2, name="q", type="queue") == "invalid_destination"
    rig.create()
    Client(rig).consumer()
    assert told(watcher) == []
    watcher.ok("unwatch_consumers", handle=1)
    assert rig.host.watch._watched == {}


def test_watching_is_no_use_so_an_auto_created_destination_still_goes() -> None:
    """D-22"""
    rig = Rig(imq__autocreate__reaptime=10)
    rig.create(auto_created=True)
    watch(Client(rig), 1)
    rig.tick()
    rig.tick(10_000)
    assert rig.idle == [("queue", "q")]


def test_producers_are_told_what_to_check_when_they_open() -> None:
    """R-17"""
    rig = Rig()
    rig.create("plain")
    rig.create("checked", validateXMLSchemaEnabled=True, XMLSchemaURIList=" a.xsd  http://x/b.xsd ")
    client = Client(rig)
    answers = [
        client.ok("open_producer", handle=handle, name=name, type="queue", producer=handle)
        for handle, name in enumerate(("plain", "checked"), start=1)
    ]
    assert "xml" not in answers[0]
    assert answers[1]["xml"] == {"schemas": ["a.xsd", "http://x/b.xsd"], "reload": False}
