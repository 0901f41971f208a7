"""Every action of every page of the console, pressed in a real Chromium: what becomes of it in the broker, which
command line the dialog shows for it, and the line of the audit log."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raybroker as rb
from raybroker.errors import BrokerError, StoreDamagedError
from raybroker.model.naming.xid import Xid
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.services.console.static_files import FOLDER
from tests.cluster.chromium import Page, chromium
from tests.cluster.test_console import is_known
from tests.contracts.test_cluster_rig import restore, states
from tests.contracts.test_damage import body, rot
from tests.contracts.test_gateway_cluster import Gateways
from tests.contracts.test_http_admin import Administered
from tests.contracts.test_rest import VERIFIER

pytestmark = pytest.mark.timeout(300)
WAIT_S = 60.0


class World:
    """A broker with what the actions are done to. ``downloads``: where the browser puts files."""

    def __init__(self, folder: Path, opened: ExitStack, downloads: Path) -> None:
        self.opened = opened
        self.store = folder / "store"
        served = self.served = Administered(
            folder,
            opened,
            store=self.store,
            **{"raybroker.store.segment_bytes": "1m", "raybroker.memory.block_cache_bytes": 0},
        )
        self.admin, self.downloads, self.url = served.admin, downloads, served.url
        self.inside = served.inside.session()
        self.closing: Any = None
        for name in ("made", "box", "target", "again", "died", "left"):
            self.admin.create_destination("queue", name)
        self.admin.create_destination("topic", "news")
        for number in range(6):
            self.inside.producer("box").send(f"body {number}", properties={"n": number})
        self.admin.pause_destination("queue", "box", "consumers")

    def row(self, name: str) -> Any:
        return self.admin.query_destination("queue", name)

    def held(self, name: str) -> Any:
        return self.row(name)["messages"]

    def names(self, kind: str) -> list[str]:
        return [row["name"] for row in getattr(self.admin, f"list_{kind}")()]

    def may(self, user: str, password: str) -> bool:
        return bool(self.served.client(user, password, base_url=self.url).get("/broker").status_code == 200)

    # ---- what has to be there

    def sends(self, queue: str) -> None:
        self.inside.producer(queue).send("x")

    def rots(self) -> None:
        for number in range(40):
            self.inside.producer("rotten").send(body(number))
        rot(self.store, body(20))
        consumer = self.inside.consumer("rotten")
        try:
            for _ in range(40):
                consumer.receive(timeout=WAIT_S)
        except StoreDamagedError:
            return
        finally:
            consumer.close()
        raise AssertionError("nothing is damaged")

    def schedules(self) -> None:
        self.admin.resume_destination("queue", "made")
        self.inside.producer("made").send("tick", schedule="@every 1h")

    def dies(self) -> None:
        before = self.held("mq.sys.dmq")
        session = self.served.jms().session(ack="client")
        session.producer("died").send("fails")
        session.consumer("died").receive(timeout=WAIT_S).reject("no")
        until(lambda: self.held("mq.sys.dmq") > before)
        session.close()

    def publishes(self) -> None:
        self.inside.producer("topic:news").send("one")
        until(lambda: self.subscription("weekly")["messages"] == 1)

    def subscription(self, name: str) -> Any:
        return next((row for row in self.admin.list_subscriptions() if row["name"] == name), None)

    def works(self) -> None:
        self.served.jms(client_id="works").session(transacted=True).producer("made").send("half")

    def prepares(self) -> None:
        url = f"mqtcp://127.0.0.1:{self.served.ports['jms']}/jms"
        connection = rb.connect_xa(url, username="ann", password="secret")
        self.opened.callback(connection.close)
        session, xid = connection.session(), Xid(1, b"global")
        session.xa.start(xid)
        session.producer("made").send("half")
        session.xa.end(xid)
        session.xa.prepare(xid)

    def transaction(self, state: str) -> Any:
        return next((row for row in self.admin.list_transactions() if row["state"] == state), None)

    def connects(self) -> None:
        self.closing = self.served.jms(client_id="late")

    def was_told(self) -> bool:
        try:
            self.closing.session().producer("made").send("x")
        except BrokerError as error:
            return "it is 'late'" in str(error)
        return False

    def connection(self) -> str:
        return str(next(row["id"] for row in self.admin.list_connections(client_id="late")))

    def exported(self) -> Any:
        return json.loads((self.downloads / "definitions.json").read_text())

    def wants(self, change: Callable[[Any], object]) -> str:
        """A file of definitions, with something else than there is."""
        wanted = self.exported()
        change(wanted)
        made = self.downloads / "wanted.json"
        made.write_text(json.dumps(wanted))
        return str(made)


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


class Action(NamedTuple):
    """verb    that carries it out, "" for what only reads
    place      the page, "" for the one of the action before
    label      the button's name, or what gives it
    holds      whether the broker has done it
    first      makes what it is done to
    look       does something else on the page before
    """

    verb: str
    place: str
    label: str | Callable[[World], str]
    holds: Callable[[World], Any]
    fields: Mapping[str, str] = {}
    confirm: str = ""
    first: Callable[[World], object] = lambda world: None
    look: Callable[[Page, World], object] = lambda page, world: None


def select(selector: str) -> Callable[[Page, World], object]:
    def look(page: Page, world: World) -> None:
        page.write("selector", selector)
        page.press("Show")
        page.until(lambda: "that match" in page.text())

    return look


def choose(change: Callable[[Any], object]) -> Callable[[Page, World], object]:
    def look(page: Page, world: World) -> None:
        before = world.names("destinations")
        page.one("input[name=definitions]").send_keys(world.wants(change))
        page.shows("Plan for wanted.json")
        assert world.names("destinations") == before, "a plan changes nothing"

    return look


def kind(word: str, listed: str, place: str = "quotas", limit: str = "maxNumMsgs", **more: str) -> list[Action]:
    """Quotas, policies and templates are made, changed and ended alike."""

    def value(world: World) -> Any:
        return next(row for row in getattr(world.admin, f"list_{listed}")() if row["name"] == "x1")["attributes"][limit]

    made, changed = {"name": "x1", "attributes": f"{limit}=5", **more}, {"attributes": f"{limit}=6"}
    return [
        Action(f"create_{word}", place, f"Create {word}", lambda world: value(world) == 5, made),
        Action(f"update_{word}", "", f"Change {word} x1", lambda world: value(world) == 6, changed),
        Action(f"destroy_{word}", "", f"Destroy {word} x1", lambda world: "x1" not in world.names(listed), {}, "x1"),
    ]


MADE = "destination/queue/made"
TABLE = [
    Action(
        "create_destination",
        "destinations",
        "Create destination",
        lambda world: world.row("fresh")["attributes"]["maxNumMsgs"] == 7,
        {"name": "fresh", "attributes": "maxNumMsgs=7\nuseDMQ=false"},
    ),
    Action(
        "pause_destination",
        MADE,
        "Pause queue made",
        lambda world: world.row("made")["state"] == "CONSUMERS_PAUSED",
        {"which": "consumers"},
    ),
    Action("resume_destination", MADE, "Resume queue made", lambda world: world.row("made")["state"] == "RUNNING"),
    Action(
        "update_destination",
        MADE,
        "Change attributes queue made",
        lambda world: world.row("made")["attributes"]["maxNumMsgs"] == 9,
        {"attributes": "maxNumMsgs=9"},
    ),
    Action(
        "reset_destination",
        MADE,
        "Reset counts queue made",
        lambda world: world.row("made")["messages_in"] == 0,
        first=lambda world: world.sends("made"),
    ),
    Action("purge_destination", MADE, "Purge queue made", lambda world: world.held("made") == 0, {}, "made"),
    Action(
        "compact_destination",
        MADE,
        "Compact store queue made",
        lambda world: True,
        first=lambda world: world.admin.pause_destination("queue", "made"),
    ),
    Action(
        "destroy_schedule",
        MADE,
        lambda world: f"End schedule {world.admin.list_schedules()[0]['id']}",
        lambda world: world.admin.list_schedules() == [],
        first=World.schedules,
    ),
    Action(
        "skip_messages",
        "destination/queue/rotten",
        "Skip damaged queue rotten",
        lambda world: world.row("rotten")["state"] == "RUNNING",
        {},
        "rotten",
        first=World.rots,
    ),
    Action(
        "destroy_destination",
        "destination/queue/fresh",
        "Destroy queue fresh",
        lambda world: "fresh" not in world.names("destinations"),
        {},
        "fresh",
    ),
    Action(
        "delete_messages",
        "messages/queue/box",
        "Delete 1 selected of box",
        lambda world: world.held("box") == 5,
        look=lambda page, world: page.one("tbody input[type=checkbox]").click(),
    ),
    Action(
        "move_messages",
        "messages/queue/box",
        "Move all that match of box",
        lambda world: (world.held("box"), world.held("target")) == (3, 2),
        {"target": "target"},
        look=select("n > 3"),
    ),
    Action(
        "",
        "messages/queue/box",
        "Export all that match of box",
        lambda world: (world.downloads / "box.messages").exists(),
        look=select("n < 3"),
    ),
    Action(
        "import_messages",
        "messages/queue/again",
        "Import",
        lambda world: world.held("again") == 2,
        look=lambda page, world: (
            page.one("input[name=import]").send_keys(str(world.downloads / "box.messages")),
            page.one("dialog[open]"),
        ),
    ),
    Action(
        "retry_messages",
        "messages/queue/mq.sys.dmq",
        "Retry all of mq.sys.dmq",
        lambda world: world.held("died") == 1,
        first=World.dies,
    ),
    Action(
        "create_subscription",
        "subscriptions",
        "Create durable subscription",
        lambda world: world.subscription("weekly")["client_id"] == "paper",
        {"name": "weekly", "topic": "news", "client_id": "paper"},
    ),
    Action(
        "purge_subscription",
        "subscriptions",
        "Purge subscription weekly",
        lambda world: world.subscription("weekly")["messages"] == 0,
        {},
        "weekly",
        first=World.publishes,
    ),
    Action(
        "destroy_subscription",
        "subscriptions",
        "Destroy subscription weekly",
        lambda world: world.subscription("weekly") is None,
        {},
        "weekly",
    ),
    Action(
        "commit_transaction",
        "transactions",
        lambda world: "Commit transaction {host}:{id}".format(**world.transaction("PREPARED")),
        lambda world: world.transaction("PREPARED") is None and world.held("made") == 1,
        first=World.prepares,
    ),
    Action(
        "rollback_transaction",
        "transactions",
        lambda world: "Roll back transaction {host}:{id}".format(**world.transaction("STARTED")),
        lambda world: world.transaction("STARTED") is None and world.held("made") == 1,
        first=World.works,
    ),
    Action(
        "destroy_connection",
        "connections",
        lambda world: f"Close connection {world.connection()}",
        lambda world: world.admin.list_connections(client_id="late") == [] and world.was_told(),
        {"reason": "it is 'late'"},
        first=World.connects,
    ),
    Action(
        "set_user",
        "users",
        "Add user",
        lambda world: world.may("dora", "pässword"),
        {"user": "dora", "group": "admin", "password": "pässword", "again": "pässword"},
    ),
    Action(
        "set_user",
        "",
        "Password of dora",
        lambda world: world.may("dora", "another") and not world.may("dora", "pässword"),
        {"password": "another", "again": "another"},
    ),
    Action(
        "destroy_user",
        "",
        "Delete user dora",
        lambda world: "dora" not in [row["user"] for row in world.admin.list_users()],
        {},
        "dora",
    ),
    *kind("quota", "quotas", limit="MessagesMaximum"),
    *kind("policy", "policies", pattern="big>"),
    *kind("template", "templates"),
    Action("", "definitions", "Export definitions", lambda world: (world.downloads / "definitions.json").exists()),
    Action(
        "import_definitions",
        "definitions",
        "Import wanted.json",
        lambda world: "planned" in world.names("destinations"),
        look=choose(lambda wanted: wanted["queues"].update(planned={})),
    ),
    Action(
        "import_definitions",
        "definitions",
        "Import and destroy the rest wanted.json",
        lambda world: {"left", "planned"}.isdisjoint(world.names("destinations")),
        {},
        "loopback",
        look=choose(lambda wanted: wanted["queues"].pop("left")),
    ),
    Action(
        "update_broker",
        "brokers",
        "Change properties of all brokers",
        lambda world: world.admin.query_broker()["changed"]["imq.log.level"] == "WARNING",
        {"attributes": "imq.log.level=WARNING"},
    ),
    Action("pause_service", "brokers", "Pause service jms", lambda world: service(world) == "PAUSED"),
    Action("resume_service", "", "Resume service jms", lambda world: service(world) == "RUNNING"),
]


def service(world: World) -> Any:
    return next(row["state"] for row in world.admin.list_services() if row["service"] == "jms")


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Page]:
    with chromium(downloads) as page:
        yield page


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, browser: Page, downloads: Path) -> Iterator[World]:
    """The browser is logged in."""
    with ExitStack() as opened:
        made = World(tmp_path_factory.mktemp("actions"), opened, downloads)
        browser.log_in(made.url)
        browser.one("nav.main")
        yield made


def named(action: Action) -> str:
    label = action.label if isinstance(action.label, str) else action.verb
    return f"{action.verb or 'reads'}-{label.replace(' ', '_')}"


@pytest.mark.parametrize("action", TABLE, ids=named)
def test_an_action_is_done_and_written_down(browser: Page, world: World, action: Action) -> None:
    before = len(world.served.audited())
    action.first(world)
    if action.place:
        browser.driver.execute_script("location.hash = '#/nowhere'")  # A page is read anew.
        browser.go(action.place)
    action.look(browser, world)
    label = action.label if isinstance(action.label, str) else action.label(world)
    is_known(browser.act(label, action.fields, confirm=action.confirm))
    until(lambda: action.holds(world))
    done = [row for row in world.served.audited()[before:] if row["event"] == "admin" and row["user"] == "root"]
    assert [row["what"].partition("(")[0] for row in done] in (
        [action.verb] if action.verb else [],
        [action.verb, action.verb] if action.verb == "import_definitions" else None,  # Its plan is one, too.
    )
    assert browser.all("main [role=alert]") == []


RIG_ACTIONS = {"Adopt", "Back up", "Move the record"}
RAY_ACTIONS = {"Restart", "Shut down"}
_LABEL = re.compile(r'(?:<\$\{Action\} (?:short )?label=|\{ label: )"([^"]+)"')


def test_no_action_of_a_page_is_left_out() -> None:
    there = {label for file in FOLDER.glob("*.js") for label in _LABEL.findall(file.read_text())}
    assert len(there) > 20
    pressed = [action.label if isinstance(action.label, str) else action.verb for action in TABLE]
    words = {"End": "destroy_schedule", "Commit": "commit_", "Roll back": "rollback_", "Close": "destroy_connection"}
    left = {label for label in there if not any(one.startswith(words.get(label, label)) for one in pressed)}
    assert left == RIG_ACTIONS | RAY_ACTIONS


def test_actions_of_a_cluster_and_its_record(browser: Page, tmp_path: Path, downloads: Path) -> None:
    with ExitStack() as opened:
        properties = {"imq.service.activelist": "httpadmin", "imq.cluster.masterbroker": "b1"}
        cluster = Gateways(tmp_path, opened, **properties)
        rig = cluster.rig
        UserFile(tmp_path / "security" / "passwd").add("root", UserEntry(VERIFIER, "admin"))

        def log_in(broker: str) -> None:
            browser.driver.delete_all_cookies()
            browser.log_in(f"http://127.0.0.1:{cluster.port(broker, 'httpadmin')}")
            browser.one("nav.main")

        log_in("b2")
        browser.go("brokers", "Brokers")
        is_known(browser.act("Back up the record", said="in the file"))
        browser.until((downloads / "record.backup").exists)
        assert rig.connect("b1").admin().query_cluster()["master"] == "b1"
        is_known(browser.act("Move the record to another broker", {"target": "b3"}, said="moved"))
        until(lambda: rig.connect("b1").admin().query_cluster()["master"] == "b3")
        rig.connect("b2").admin().create_destination("queue", "orphan")
        restore(rig, (downloads / "record.backup").read_bytes())
        until(lambda: states(rig, "queue")["orphan"] == "ORPHANED")  # All brokers have read the record.
        log_in("b2")
        browser.go("destination/queue/orphan", "Queue orphan")
        is_known(browser.act("Adopt queue orphan", said="adopted"))
        until(lambda: states(rig, "queue")["orphan"] == "RUNNING")
