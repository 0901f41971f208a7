"""The console over HTTP: login and sessions, what pages of others may not do, and that nothing is markup."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from raybroker.security.tls import client_context
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.services.console.console import HEADERS
from raybroker.wire.scram import Verifier
from tests.contracts.test_gateway_cluster import Gateways
from tests.contracts.test_http_admin import Administered
from tests.contracts.test_rest import VERIFIER, until
from tests.unit.security.certificates import Authority

OTHER = str(Verifier.from_password("other", b"t" * 16, 64))
EVIL = "<script>alert(1)</script>"


class Visitor:
    """A browser without its pages: it keeps the cookie and the token of its session."""

    def __init__(self, served: Administered, user: str = "root", password: str = "secret", **options: Any) -> None:
        self.http = served.client("nobody", auth=None, **{"base_url": served.url, **options})
        self.answer = self.http.post("/console/session", json={"user": user, "password": password})
        self.token = self.answer.json().get("token", "")

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"x-csrf-token": self.token, **options.pop("headers", {})}
        return self.http.request(method, f"/console/{path}", headers=headers, **options)

    def status(self) -> int:
        return self.ask("GET", "session").status_code


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Administered]:
    with ExitStack() as opened:
        yield Administered(tmp_path, opened)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    """For what changes no users."""
    with ExitStack() as opened:
        yield Administered(Path(tmp_path_factory.mktemp("console")), opened)


def test_the_page_and_its_files_are_served_to_anybody_and_kept_by_browsers(shared: Administered) -> None:
    with httpx.Client(base_url=shared.url) as http:
        assert http.get("/console").headers["location"] == "/console/"
        page = http.get("/console/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        script = http.get("/console/app.js")
        assert script.headers["content-type"].startswith("text/javascript")
        again = http.get("/console/app.js", headers={"if-none-match": script.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert http.head("/console/vendor/uPlot.js").status_code == 200
        assert http.post("/console/app.js").status_code == 405
        for path in (
            "../console.py",
            "%2e%2e/console.py",
            "..%2Fconsole.py",
            "static/app.js",
            "vendor",
            "vendor/",
            "%ff",
        ):
            assert http.get(f"/console/{path}").status_code in (400, 404), path


@pytest.mark.parametrize(
    "path", ["", "app.js", "nowhere", "session", "api/broker", "api/destinations/queue/none", "view/destinations"]
)
def test_every_answer_forbids_frames_foreign_scripts_and_guesses_of_its_type(shared: Administered, path: str) -> None:
    """Clickjacking, and what a body might be taken for."""
    for http in (Visitor(shared).http, shared.client("nobody", auth=None)):
        answer = http.get(f"/console/{path}")
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_a_login_gives_a_cookie_that_scripts_and_other_sites_do_not_get(shared: Administered) -> None:
    visitor = Visitor(shared)
    assert visitor.answer.status_code == 200
    cookie = visitor.answer.headers["set-cookie"]
    name = f"raybroker_console_{shared.ports['httpadmin']}"
    assert cookie.startswith(f"{name}=")
    assert {part.strip() for part in cookie.split(";")[1:]} == {
        "Path=/console/", "Max-Age=43200", "HttpOnly", "SameSite=Strict",
    }  # fmt: skip
    told = visitor.ask("GET", "session").json()
    assert (told["user"], told["broker"], told["token"]) == ("root", "loopback", visitor.token)
    assert "secret" not in visitor.answer.text
    assert visitor.http.cookies[name] not in visitor.answer.text


def test_with_tls_the_cookie_goes_over_tls_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("key.pem")
    keys = {"imq.keystore.file.dirpath": str(tmp_path), "imq.keystore.file.name": "key.pem"}
    with ExitStack() as opened:
        served = Administered(tmp_path, opened, **{"imq.service.activelist": "httpsadmin", **keys})
        url = f"https://localhost:{served.ports['httpsadmin']}"
        visitor = Visitor(served, base_url=url, verify=client_context(trust=authority.file))
        assert "; Secure" in visitor.answer.headers["set-cookie"]
        assert visitor.status() == 200


@pytest.mark.parametrize(
    ("user", "password", "status"),
    [("root", "wrong", 401), ("nobody", "secret", 401), ("ann", "secret", 403), ("root", "", 401), ("a:b", "x", 401)],
)
def test_who_may_not_administer_gets_no_session(shared: Administered, user: str, password: str, status: int) -> None:
    visitor = Visitor(shared, user, password)
    assert visitor.answer.status_code == status
    assert "set-cookie" not in visitor.answer.headers
    assert "www-authenticate" not in visitor.answer.headers, "a browser would ask by itself"
    assert visitor.status() == 401
    assert visitor.ask("GET", "api/destinations").status_code == 401
    assert visitor.ask("GET", "view/destinations").status_code == 401


@pytest.mark.parametrize("body", [b"{}", b"[]", b"{", b'{"user": 1, "password": "x"}', b'{"user": "root", "more": 1}'])
def test_a_login_that_is_none_is_refused(shared: Administered, body: bytes) -> None:
    http = shared.client("nobody", auth=None)
    answer = http.post("/console/session", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 401)
    form = http.post("/console/session", data={"user": "root", "password": "secret"})
    assert form.status_code == 415, "a form of another site needs no leave of the browser, and is not taken"


def test_verbs_are_those_of_administration_with_the_rights_of_the_user(served: Administered) -> None:
    visitor = Visitor(served)
    made = visitor.ask("POST", "api/destinations", json={"type": "queue", "name": "orders"})
    assert (made.status_code, made.json()) == (201, {"result": "created"})
    assert visitor.ask("GET", "api/destinations/queue/orders").json()["state"] == "RUNNING"
    assert visitor.ask("GET", "api/health/broker").json()["grade"] == "ok"
    assert "orders" not in visitor.ask("DELETE", "api/destinations/queue/orders").text
    assert visitor.ask("GET", "api/destinations/queue/orders").status_code == 404
    for path in ("api/console/session", "api/nowhere", "view/nowhere"):
        assert visitor.ask("GET", path).status_code == 404
    changes = [row["what"] for row in served.audited() if row["event"] == "admin"]
    assert any("create_destination" in what for what in changes), changes
    assert any("destroy_destination" in what for what in changes), changes
    assert {row["user"] for row in served.audited() if row["event"] == "admin"} == {"root"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "api/destinations", {"type": "queue", "name": "stolen"}),
        ("POST", "api/destinations/queue/mq.sys.dmq/purge", {}),
        ("PATCH", "api/brokers", {"properties": {"imq.log.level": "ERROR"}}),
        ("DELETE", "api/users/bob", None),
        ("DELETE", "session", None),
    ],
)
def test_a_change_without_the_sessions_token_or_from_another_site_is_refused(
    shared: Administered, method: str, path: str, body: Any
) -> None:
    """CSRF"""
    visitor, other = Visitor(shared), Visitor(shared)
    before = shared.admin.list_destinations()
    sent = {} if body is None else {"json": body}
    for token in ("", "x" * 64, other.token):
        assert visitor.ask(method, path, headers={"x-csrf-token": token}, **sent).status_code == 403
    for foreign in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert visitor.ask(method, path, headers=foreign, **sent).status_code == 403
    assert [row["name"] for row in shared.admin.list_destinations()] == [row["name"] for row in before]
    assert visitor.status() == 200


def test_another_site_does_not_even_read_and_other_origins_of_the_services_are_none_here(tmp_path: Path) -> None:
    with ExitStack() as opened:
        served = Administered(tmp_path, opened, **{"raybroker.http.cors.origins": "https://app.example"})
        visitor = Visitor(served)
        assert visitor.ask("GET", "api/destinations", headers={"sec-fetch-site": "same-site"}).status_code == 403
        friend = {"origin": "https://app.example"}
        refused = visitor.ask("POST", "api/destinations", headers=friend, json={"type": "queue", "name": "x"})
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers
        assert visitor.ask(
            "OPTIONS", "api/destinations", headers={**friend, "access-control-request-method": "POST"}
        ).status_code in (403, 405)


def test_credentials_of_http_basic_open_no_session_and_the_cookie_does_not_reach_the_services(
    shared: Administered,
) -> None:
    assert shared.root.get("/console/api/destinations").status_code == 401
    visitor = Visitor(shared)
    assert visitor.http.get("/destinations").status_code == 401


def test_a_session_ends_when_its_user_logs_out(shared: Administered) -> None:
    visitor, other = Visitor(shared), Visitor(shared)
    out = visitor.ask("DELETE", "session")
    assert out.status_code == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert (visitor.status(), other.status()) == (401, 200)


def test_a_session_changes_nothing_once_the_password_is_another_one(served: Administered) -> None:
    visitor, second = Visitor(served), Visitor(served)
    assert visitor.ask("GET", "api/broker").status_code == 200
    UserFile(served.folder / "passwd").update("root", verifier=OTHER)
    refused = visitor.ask("POST", "api/destinations", json={"type": "queue", "name": "late"})
    assert refused.status_code == 401
    assert (visitor.status(), second.status()) == (401, 401), "all sessions of that user have ended"
    assert "late" not in [row["name"] for row in served.admin.list_destinations()]
    assert Visitor(served).answer.status_code == 401
    assert Visitor(served, password="other").answer.status_code == 200


def test_a_session_that_only_looks_ends_with_the_password_too(served: Administered) -> None:
    visitor = Visitor(served)
    assert visitor.ask("GET", "view/brokers").status_code == 200
    UserFile(served.folder / "passwd").update("root", verifier=OTHER)
    until(lambda: visitor.ask("GET", "view/brokers").status_code == 401)
    assert visitor.status() == 401


def test_who_loses_the_right_to_administer_is_told_that_and_sees_nothing(served: Administered) -> None:
    visitor = Visitor(served)
    assert visitor.ask("GET", "view/brokers").status_code == 200
    rules = served.folder / "accesscontrol.properties"
    rules.write_text(f"{rules.read_text()}connection.ADMIN.deny.user=root\n")
    until(lambda: visitor.ask("GET", "view/brokers").status_code == 403)
    assert "may not connect to ADMIN services" in visitor.ask("GET", "api/destinations").json()["detail"]
    refused = visitor.ask("POST", "api/destinations", json={"type": "queue", "name": "late"})
    assert refused.status_code == 403
    assert "late" not in [row["name"] for row in served.admin.list_destinations()]


def test_changing_or_deleting_a_user_in_the_console_ends_the_sessions_of_that_user(served: Administered) -> None:
    served.users.add("eve", UserEntry(OTHER, "admin"))
    root, eve = Visitor(served), Visitor(served, "eve", "other")
    assert (root.status(), eve.status()) == (200, 200)
    assert root.ask("PUT", "api/users/eve", json={"verifier": OTHER, "group": "admin"}).status_code < 300
    assert (root.status(), eve.status()) == (200, 401)
    eve = Visitor(served, "eve", "other")
    assert root.ask("DELETE", "api/users/eve").status_code < 300
    assert (root.status(), eve.status()) == (200, 401)
    assert Visitor(served, "eve", "other").answer.status_code == 401


SCRIPT = "%3Cscript%3Ealert(1)%3C%2Fscript%3E"
DATA = (
    "api/destinations/queue/orders/messages",
    "api/connections",
    "api/consumers",
    f"api/destinations/queue/{SCRIPT}",
    f"api/{SCRIPT}",
    f"view/destinations?sort={SCRIPT}",
    f"view/history?type=x&name={SCRIPT}",
    SCRIPT,
)


def test_what_clients_have_named_is_data_and_never_a_page(served: Administered) -> None:
    """XSS: answers are JSON by their type, and nothing may take them for something else."""
    client = served.jms(client_id=EVIL)
    session = client.session()
    session.producer("orders").send(EVIL, properties={"p": EVIL}, type=EVIL, correlation_id=EVIL)
    _kept = session.consumer("orders", selector=f"p = '{EVIL}'")
    visitor = Visitor(served)
    for path in DATA:
        answer = visitor.ask("GET", path)
        assert answer.headers["content-type"] in ("application/json", "application/problem+json"), path
        assert answer.headers["x-content-type-options"] == "nosniff"
        json.loads(answer.text)


def test_a_thousand_destinations_are_shown_in_pages_sorted_and_filtered(served: Administered) -> None:
    for number in range(200):
        served.admin.create_destination("queue", f"lager.q{number:03}")
    for number in range(3):
        served.send(number, "lager.q150")
    visitor = Visitor(served)

    def rows(**query: Any) -> Any:
        return visitor.ask("GET", "view/destinations", params=query).json()

    first = rows(sort="messages", falling=True, max=5)
    assert (first["rows"][0]["name"], first["rows"][0]["messages"], len(first["rows"])) == ("lager.q150", 3, 5)
    assert (first["count"], first["all"], first["sums"]["messages"]) == (201, 201, 3)
    assert first["sums"]["in_rate"] is None, "there is nothing yet to compare the counts with"
    found = rows(text="Q19", start=5, max=50)
    assert [row["name"] for row in found["rows"]] == [f"lager.q{number}" for number in range(195, 200)]
    assert "attributes" not in found["rows"][0]
    for query in ({"sort": "x"}, {"max": 0}, {"max": 1001}, {"start": -1}, {"more": 1}, {"text": "x" * 201}):
        assert visitor.ask("GET", "view/destinations", params=query).status_code == 400, query
    made = visitor.ask("POST", "api/destinations", json={"type": "queue", "name": "new.one"})
    assert made.status_code == 201
    assert rows(text="new.one")["count"] == 1, "what was changed here is shown at once"


def test_the_last_hour_was_sampled_before_anybody_logged_in(tmp_path: Path) -> None:
    with ExitStack() as opened:
        served = Administered(tmp_path, opened, **{"raybroker.console.history_interval": 1})
        for number in range(3):
            served.send(number, "orders")
        served.send(0, "more")
        time.sleep(2.1)
        visitor = Visitor(served)

        def rows(**query: str) -> Any:
            return visitor.ask("GET", "view/history", params=query).json()["rows"]

        until(lambda: rows()[-1][1] == 4)
        orders, both = rows(type="queue", name="orders"), rows()
        assert len(orders) >= 2, "it was there for several samples when the first one looked"
        assert orders[-1][1:] == [3, 0, 0]
        seen = visitor.ask("GET", "view/destinations", params={"text": "orders"}).json()
        assert (seen["rows"][0]["in_rate"], seen["sums"]["in_rate"]) == (0, 0), "rates are known at the first look"
        sent = sum(row[2] * (row[0] - before[0]) / 1000 for before, row in itertools.pairwise(both) if row[2])
        assert 3.5 < sent < 4.5
        assert rows(type="queue", name="none") == rows(type="topic", name="orders") == []
        assert visitor.ask("GET", "view/history", params={"nme": "orders"}).status_code == 400


def test_the_last_hour_of_a_cluster_has_what_all_brokers_hold(tmp_path: Path) -> None:
    services = {"imq.service.activelist": "httpadmin", "raybroker.console.history_interval": 1}
    with ExitStack() as opened:
        cluster = Gateways(tmp_path, opened, **services)
        UserFile(tmp_path / "security" / "passwd").add("root", UserEntry(VERIFIER, "admin"))
        for number, broker in enumerate(cluster.rig.brokers, 1):
            cluster.rig.connect(broker).session().producer("orders").send_many([b"x"] * number)
        with httpx.Client(base_url=f"http://127.0.0.1:{cluster.port('b2', 'httpadmin')}/console") as http:
            assert http.post("/session", json={"user": "root", "password": "secret"}).status_code == 200

            def held() -> Any:
                rows = http.get("/view/history", params={"type": "queue", "name": "orders"}).json()["rows"]
                return rows[-1][1] if rows else None

            until(lambda: held() == 1 + 2 + 3)
            cluster.rig.kill("b3")
            until(lambda: held() == 1 + 2)


KEY = ("topic", "client_id")
"""What a subscription is found by, beside its name."""
CHANGES = {
    "destroy_destination": ("DELETE", "destinations/{type}/{name}", None),
    "pause_destination": ("POST", "destinations/{type}/{name}/pause", {}),
    "resume_destination": ("POST", "destinations/{type}/{name}/resume", {}),
    "compact_destination": ("POST", "destinations/{type}/{name}/compact", {}),
    "delete_messages": ("POST", "destinations/{type}/{name}/messages/delete", {}),
    "move_messages": ("POST", "destinations/{type}/{name}/messages/move", {"target": "other"}),
    "retry_messages": ("POST", "destinations/{type}/{name}/messages/retry", {}),
    "purge_subscription": ("POST", "subscriptions/{name}/purge", KEY),
    "destroy_subscription": ("DELETE", "subscriptions/{name}", KEY),
    "commit_transaction": ("POST", "transactions/{id}/commit", None),
    "rollback_transaction": ("POST", "transactions/{id}/rollback", None),
    "pause_service": ("POST", "services/{service}/pause", None),
    "resume_service": ("POST", "services/{service}/resume", None),
    "restart_broker": ("POST", "brokers/{broker}/restart", {}),
    "shutdown_broker": ("POST", "brokers/{broker}/shutdown", {}),
}
"""Verb → (method, path, body) of a change that the broker may refuse."""


def test_what_a_page_says_would_be_refused_is_refused_in_the_same_words(served: Administered) -> None:
    session = served.jms(client_id="c").session(transacted=True)
    session.producer("orders").send("open")
    served.admin.create_destination("queue", "other")
    temporary = served.jms().session().temporary_queue()
    _durable = session.durable_consumer(session.topic("news"), "daily")
    _shared = served.jms().session().shared_consumer(session.topic("news"), "passing")
    visitor = Visitor(served)

    def rows(view: str, **query: str) -> Any:
        answer = visitor.ask("GET", f"view/{view}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json().get("rows", [answer.json()])

    names = ("orders", "mq.sys.dmq", temporary.name)
    seen = [row for name in names for row in rows("destination", type="queue", name=name)]
    seen += [row for view in ("subscriptions", "transactions", "services", "brokers") for row in rows(view)]
    told = set()
    for row in seen:
        for verb, why in row["not_now"].items():
            method, path, given = CHANGES[verb]
            body = {name: row[name] for name in KEY if row[name]} if given is KEY else given
            sent = {} if body is None else {"params" if method == "DELETE" else "json": body}
            refused = visitor.ask(method, "api/" + path.format(**row), **sent)
            assert refused.status_code >= 400, (verb, row)
            assert refused.json()["detail"] == why
            told.add((verb, row.get("name") or row.get("service") or (row.get("id") and "transaction")))
    assert {verb for verb, _ in told} == CHANGES.keys() - {"rollback_transaction"}
    assert ("destroy_subscription", "daily") in told
    assert ("purge_subscription", "passing") in told
    assert ("destroy_destination", temporary.name) in told
    assert ("delete_messages", "mq.sys.dmq") not in told
    served.admin.pause_destination("queue", "orders")
    (paused,) = rows("destination", type="queue", name="orders")
    assert paused["not_now"] == {}


def test_the_broker_tells_where_the_console_is(shared: Administered) -> None:
    told = {row["service"]: row["console"] for row in shared.admin.list_services() if row["console"]}
    assert told == {"httpadmin": f"{shared.url}/console/"}
    assert httpx.get(told["httpadmin"]).status_code == 200


def test_a_setting_switches_the_console_off(tmp_path: Path) -> None:
    with ExitStack() as opened:
        served = Administered(tmp_path, opened, **{"raybroker.console.enabled": False})
        assert not any(row["console"] for row in served.admin.list_services())
        for path in ("/console", "/console/", "/console/app.js", "/console/session"):
            assert served.root.get(path).status_code == 404
        assert served.root.get("/broker").status_code == 200
