"""The console in a real Chromium: each page in both themes by axe-core, each action, attacks, a lost broker."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from raybroker.cli.main import app
from raybroker.model import refusals
from raybroker.security.user_file import UserEntry
from tests.cluster.chromium import Page, chromium
from tests.cluster.test_cli import Shell, new_shell
from tests.contracts.test_console import OTHER
from tests.contracts.test_http_admin import Administered
from tests.contracts.test_rest import VERIFIER

pytestmark = pytest.mark.timeout(300)
GERMAN = "Donaudampfschifffahrtsgesellschaftskapitaensmuetzenabzeichenverleihungsurkunde." * 2 + "Auftraege"
JAPANESE = "注文.受付待ち行列"
EVIL = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
PAGES = {
    "": "Overview",
    "destinations": "Destinations",
    "destination/queue/orders": "Queue orders",
    "messages/queue/orders": "Messages of orders",
    "subscriptions": "Subscriptions",
    "transactions": "Transactions",
    "connections": "Connections",
    "users": "Users and rights",
    "quotas": "Quotas and policies",
    "definitions": "Definitions",
    "brokers": "Brokers",
}


MARKUP = "return [...document.querySelectorAll('body img, body script, [onerror]')].map((one) => one.outerHTML)"
"""What of EVIL has become an element; the page itself has none of these."""


class Filled(Administered):
    """A broker with something on every page."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        super().__init__(folder, opened)
        for number in range(3):
            self.send({"n": number}, "orders")
        client = self.jms(client_id=EVIL)
        self.session = client.session(transacted=True)
        self.session.durable_consumer(self.session.topic("news"), "daily").close()
        self._consumer = self.session.consumer("orders", prefetch=2)
        self.session.producer("orders").send("open")
        self.admin.create_destination("queue", GERMAN)
        self.jms(client_id=JAPANESE).session().producer(GERMAN).send(
            JAPANESE, type=JAPANESE, properties={"p": JAPANESE}
        )
        self.admin.create_quota("small", MessagesMaximum=100)
        self.admin.create_policy("held", "held>", maxNumMsgs=5)
        self.admin.create_template("tiny", maxNumMsgs=3)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with ExitStack() as opened:
        yield Filled(tmp_path_factory.mktemp("console"), opened)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Page]:
    with chromium(downloads) as page:
        yield page


@pytest.fixture
def page(browser: Page, filled: Filled) -> Page:
    """Logged in, at the overview."""
    browser.driver.delete_all_cookies()
    browser.driver.get("about:blank")
    browser.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
    browser.log_in(filled.url)
    browser.one("nav.main")
    browser.settled()
    return browser


def is_known(line: str) -> None:
    """The command line is one of raybroker's, and its options are the command's."""
    from typer.main import get_command

    words = shlex.split(line)
    assert words[0] == "raybroker"
    command: Any = get_command(app)
    rest = words[1:]
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context("raybroker", rest, resilient_parsing=False)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_page_has_no_violations(page: Page, theme: str) -> None:
    """The policy of the pages lets no script in, so that it is switched off for axe-core."""
    page.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.refresh()
    page.one("nav.main")
    page.write("theme", theme)
    found = {}
    for place, heading in PAGES.items():
        page.go(place, heading)
        found[place] = page.violations()
        page.keep(f"{theme}-{place.split('/')[0] or 'overview'}")
    page.go("messages/queue/orders", PAGES["messages/queue/orders"])
    page.all("tbody th button")[0].click()
    page.one("dialog[open]")
    found["a message"] = page.violations()
    page.press("Close")
    page.go("destination/queue/orders", PAGES["destination/queue/orders"])
    page.press("Destroy queue orders")
    page.one("dialog[open]")
    found["a dialog"] = page.violations()
    page.keep(f"{theme}-dialog")
    page.press("Cancel")
    page.press("Log out")
    page.one("input[name=user]")
    found["login"] = page.violations()
    page.keep(f"{theme}-login")
    assert {place: faults for place, faults in found.items() if faults} == {}


def test_long_and_japanese_names_do_not_break_a_page(page: Page) -> None:
    for place in ("", "destinations", f"destination/queue/{GERMAN}", f"messages/queue/{GERMAN}", "connections"):
        page.go(place)
        for width in (1280, 420):
            page.driver.set_window_size(width, 900)
            wide = page.driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, (place, width, wide)
    page.driver.set_window_size(1280, 900)
    page.shows(JAPANESE)
    page.go(f"messages/queue/{GERMAN}")
    page.until(lambda: page.text().count(JAPANESE) >= 2)


def test_what_clients_have_named_is_shown_as_text(page: Page, filled: Filled) -> None:
    """XSS, stored and reflected: on each page the text is there, and nothing of it is markup."""
    filled.ann.post(
        f"http://127.0.0.1:{filled.ports['httpjms']}/queues/evil/messages",
        json={"body": EVIL, "type": EVIL, "correlation_id": EVIL, "properties": {"p": EVIL}},
    )
    session = filled.jms(client_id="evil").session()
    _consumer = session.consumer("evil", selector=f"p = '{EVIL}' AND JMSPriority > 8")
    session.durable_consumer(session.topic("news"), EVIL, selector=f"p = '{EVIL}'").close()

    def shown(times: int = 1, inside: str = "main") -> None:
        page.until(lambda: page.one(inside).text.count(EVIL) >= times, f"{EVIL} is not shown in {inside}")
        assert page.driver.execute_script(MARKUP) == []
        assert page.driver.execute_script("return window.pwned") is None

    page.go("messages/queue/evil", "Messages of evil")
    shown(2)
    page.press(filled.admin.browse_messages("queue", "evil")["messages"][0]["id"])
    shown(4, "dialog[open]")
    page.press("Close")
    page.go("destination/queue/evil", "Queue evil")
    shown()
    page.go("connections", "Connections")
    shown()
    page.go("transactions", "Transactions")
    shown()
    page.go("subscriptions", "Subscriptions")
    shown(3)
    page.press(f"Why? subscription {EVIL}")
    shown(1, "dialog[open]")
    page.press("Close")
    page.act(f"Destroy subscription {EVIL}", confirm=EVIL, said=f"Destroy subscription {EVIL}: destroyed")
    shown()
    page.go("users", "Users and rights")
    page.write("who", EVIL)
    page.press("Ask")
    shown(2)
    page.go(f"destination/queue/{EVIL}")
    page.until(lambda: page.all("[role=alert]"))
    shown()
    page.go(f"destinations?find={EVIL}", "Destinations")
    assert page.driver.execute_script(MARKUP) == []
    page.go(f"messages/queue/evil?selector={EVIL}", "Messages of evil")
    page.until(lambda: page.all("[role=alert]"))
    assert page.driver.execute_script(MARKUP) == []
    forbidden = page.driver.execute_script(
        "try { document.body.innerHTML = '<b>x</b>'; return 'taken' } catch (error) { return error.name }"
    )
    assert forbidden == "TypeError", "the policy of the page takes no markup from a script"


def test_it_is_used_with_the_keyboard_alone(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    active = page.driver.switch_to.active_element
    page.driver.execute_script("document.activeElement.blur()")
    body = page.one("body")
    body.send_keys(Keys.TAB)
    active = page.driver.switch_to.active_element
    assert active.text == "To the content"
    for _ in range(40):
        active = page.driver.switch_to.active_element
        if active.text == "Destinations":
            break
        active.send_keys(Keys.TAB)
    active.send_keys(Keys.ENTER)
    page.until(lambda: page.driver.switch_to.active_element.tag_name == "h1")
    assert page.driver.title.startswith("Destinations")
    page.go("destination/queue/orders", "Queue orders")
    button = page.until(lambda: page._button("Purge queue orders", ""))
    button.send_keys(Keys.ENTER)
    page.one("dialog[open]")
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"))
    page.until(lambda: page.driver.switch_to.active_element.get_attribute("aria-label") == "Purge queue orders")


REFUSED = {
    "destination/queue/mq.sys.dmq": ("query_destination", "Destroy queue mq.sys.dmq", "destroy_destination"),
    "destination/queue/orders": ("query_destination", "Compact store queue orders", "compact_destination"),
    "messages/queue/orders": ("query_destination", "Delete all of orders", "delete_messages"),
    "subscriptions": ("list_subscriptions", "Destroy subscription held", "destroy_subscription"),
    "transactions": ("list_transactions", "", "commit_transaction"),
    "brokers": ("list_brokers", "Restart broker loopback", "restart_broker"),
}
"""Page → verb of its rows, a button that is disabled there, and the change that the broker would refuse."""


def test_a_disabled_button_says_why_in_the_words_of_the_refusal(page: Page, filled: Filled) -> None:
    """That these are the words: test_what_a_page_says_would_be_refused_is_refused_in_the_same_words."""
    _held = filled.session.durable_consumer(filled.session.topic("news"), "held")
    for place, (verb, label, change) in REFUSED.items():
        kind, _, name = place.partition("/")[2].partition("/")
        asked = getattr(filled.admin, verb)
        rows = asked() if verb.startswith("list") else [asked(kind, name)]
        of = {"subscription": refusals.subscription, "transaction": refusals.transaction, "brokers": refusals.broker}
        refused = next((of[word] for word in of if word in verb), refusals.destination)
        row, told = next((row, told) for row in rows if change in (told := refused(row)))
        page.go(place)
        assert page.why_disabled(label or "Commit transaction {host}:{id}".format(**row)) == told[change]
    _held.close()


def test_what_a_user_may_and_by_which_rule(page: Page, filled: Filled) -> None:
    page.go("users", "Users and rights")
    page.write("who", "bob")
    page.write("what", "orders")
    page.press("Ask")
    page.until(lambda: "✕ no" in page.text() and "What bob may do" in page.text())
    rules = {row.text.split()[0]: row.text for row in page.all("tbody tr") if row.find_elements("css selector", "code")}
    for operation in ("produce", "consume", "browse", "create"):
        told = filled.admin.why_denied("bob", operation, "orders")
        assert ("✓ yes" if told["allowed"] else "✕ no") in rules[operation]
        assert told["rule"] in rules[operation]
    for code in page.all("td code"):
        is_known(code.text)


def test_what_waits_says_why(page: Page, filled: Filled) -> None:
    lines = []

    def asked(place: str, heading: str, label: str, said: str) -> None:
        page.go(place, heading)
        page.press(label)
        page.until(lambda: said in page.one("dialog[open]").text, said)
        lines.append(page.one("dialog[open] pre code").text)
        assert page.all("dialog[open] [role=alert]") == []
        page.press("Close", "dialog[open]")

    filled.admin.create_destination("queue", "still")
    filled.send("x", "still")
    (message,) = filled.admin.browse_messages("queue", "still")["messages"]
    filled.admin.pause_destination("queue", "still", "consumers")
    asked("destination/queue/still", "Queue still", "Why do messages wait? destination still", "What helps:")
    asked("messages/queue/still", "Messages of still", f"Why? message {message['id']}", "paused")
    page.go("messages/queue/still", "Messages of still")
    page.press(message["id"])
    page.press(f"Why does its producer wait? producer {message['id']}")
    page.until(lambda: len(page.all("dialog[open]")) == 2)
    page.driver.refresh()
    page.one("nav.main")
    (consumer,) = filled.admin.list_consumers("orders")
    asked("destination/queue/orders", "Queue orders", f"Why? consumer {consumer['id']}", "Ask again")
    asked("subscriptions", "Subscriptions", "Why? subscription daily", "Ask again")
    transaction = filled.admin.list_transactions()[0]["id"]
    asked("transactions", "Transactions", f"Why? transaction {transaction}", "Ask again")
    for line in lines:
        is_known(line)


def test_who_may_not_administer_is_told_and_a_wrong_change_says_why(page: Page, filled: Filled) -> None:
    page.go("quotas", "Quotas and policies")
    page.press("Create quota")
    page.write("name", "bad name!", "dialog[open]")
    page.press("Create", "dialog[open]")
    page.until(lambda: page.all("dialog[open] [role=alert]"))
    page.press("Cancel")
    page.press("Log out")
    for user, password, said in (("ann", "secret", "may not connect to ADMIN services"), ("root", "wrong", "password")):
        page.log_in(filled.url, user, password)
        page.until(lambda said=said: page.all("[role=alert]") and said in page.text())


def test_a_session_whose_password_changed_leads_to_the_login(page: Page, filled: Filled) -> None:
    filled.users.add("eve", UserEntry(OTHER, "admin"))
    page.press("Log out")
    page.log_in(filled.url, "eve", "other")
    page.one("nav.main")
    filled.users.update("eve", verifier=VERIFIER)
    page.go("destinations", "Destinations")
    page.press("Create destination")
    page.write("name", "late", "dialog[open]")
    page.press("Create", "dialog[open]")
    page.shows("The session has ended")
    page.log_in(filled.url, "eve", "secret")
    page.one("nav.main")
    filled.users.delete("eve")  # Now it does nothing but look.
    page.shows("The session has ended")
    assert "late" not in [row["name"] for row in filled.admin.list_destinations()]


def test_a_thousand_destinations_are_there_at_once(browser: Page, tmp_path: Path) -> None:
    with ExitStack() as opened:
        served = Administered(tmp_path, opened)
        for number in range(1000):
            served.admin.create_destination("queue", f"lager.nord.q{number:04}")
        browser.driver.delete_all_cookies()
        browser.log_in(served.url)
        browser.one("nav.main")
        took = []
        for _ in range(5):
            browser.go("users", "Users and rights")
            time.sleep(0.3)
            took.append(
                browser.driver.execute_async_script(
                    "const done = arguments[0], began = performance.now(); location.hash = '#/destinations';"
                    "const look = () => document.querySelectorAll('tbody th[scope=row]').length === 50"
                    " ? done(performance.now() - began) : requestAnimationFrame(look); look();"
                )
            )
        print(f"first rows of 1,001 destinations in {sorted(took)} ms")
        browser.write("find", "q0777")
        browser.shows("1 of 1,001")
        browser.write("find", "lager")
        browser.press("Next")
        browser.shows("51 to 100")


def test_a_broker_that_is_lost_is_said_and_what_is_shown_is_of_before(browser: Page, tmp_path: Path) -> None:
    with ExitStack() as opened:
        served = Administered(tmp_path, opened)
        served.send("x", "orders")
        browser.driver.delete_all_cookies()
        browser.log_in(served.url)
        browser.one("nav.main")
        browser.go("destinations", "Destinations")
        browser.shows("orders")
        served.inside.close()
        browser.shows("The broker does not answer. What is shown is of")
        assert "orders" in browser.text()


def broker_processes(shell: Shell) -> set[int]:
    """The processes of the brokers in the Ray that ``up`` has started from this shell."""
    return {
        child.pid
        for raylet in psutil.process_iter(["cmdline"])
        if str(shell.folder) in " ".join(raylet.info["cmdline"] or ())
        for child in raylet.children()
        if "BrokerActor" in child.name() or "BrokerActor" in " ".join(child.cmdline())
    }


def are_up(shell: Shell, brokers: set[str]) -> bool:
    return {row["broker"] for row in shell.json("list", "bkr") if row["state"] == "UP"} == brokers


@pytest.fixture
def shell() -> Iterator[Shell]:
    with new_shell() as made:
        yield made


def test_of_several_brokers_one_is_lost_and_the_console_of_the_other_says_so(browser: Page, shell: Shell) -> None:
    (shell.folder / "pw").touch(0o600)
    (shell.folder / "pw").write_text("secret\n")
    shell.output("usermgr", "add", "-u", "root", "-g", "admin", "--passfile", "pw")
    properties = ("imq.service.activelist=httpadmin", "imq.portmapper.port=0", "imq.hostname=127.0.0.1")
    told = shell.output("up", "--brokers", "2", *(word for name in properties for word in ("-D", name)))
    consoles = dict(re.findall(r"console of broker (\S+): (http://\S+)/console/", told))
    shell.output("create", "dst", "-t", "q", "-n", "orders")
    browser.driver.delete_all_cookies()
    browser.log_in(consoles["b1"])
    browser.one("nav.main")
    browser.go("brokers", "Brokers")
    browser.until(lambda: {"b1", "b2"} <= {row.text for row in browser.all("tbody th")})
    assert "record" in browser.text()
    assert "coordinator" in browser.text()
    before = broker_processes(shell)
    assert len(before) == 2
    is_known(browser.act("Restart broker b2", confirm="b2", said="it ends and is started again"))
    # It may be back before anybody has seen it away.
    browser.until(lambda: len(broker_processes(shell) - before) == 1, "b2 has no new process")
    browser.until(lambda: are_up(shell, {"b1", "b2"}), "b2 did not come back")
    is_known(browser.act("Shut down broker b2", confirm="b2", said="it ends"))
    browser.until(lambda: "DOWN" in browser.text() or "LEFT" in browser.text())
    browser.go("destinations", "Destinations")
    browser.shows("orders")
