"""The options by which a command comes in from outside: which commands get them, and what they say."""

from __future__ import annotations

import inspect
import io
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from raybroker.cli import contexts
from raybroker.cli.contexts import Context, Contexts
from raybroker.cli.exits import UsageError
from raybroker.cli.outside import Way, reachable, way


@pytest.fixture
def passfile(tmp_path: Path) -> Path:
    path = tmp_path / "pw"
    path.write_text("secret\nmore\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("address", "service", "url"),
    [
        ("h:7676", "admin", "mq://h:7676/admin"),
        ("mqtcp://h:5/jms", "admin", "mqtcp://h:5/jms"),
        ("mqs://h", "ssladmin", "mqs://h/ssladmin"),
        ("h/other", "admin", "mq://h/other"),
        ("http://h:80", "jms", "http://h:80/"),
        ("https://h/", "jms", "https://h/"),
    ],
)
def test_an_address_means_the_service_of_the_command_unless_it_names_one(address: str, service: str, url: str) -> None:
    assert Way(address, {}, {}).url(service) == url


def test_what_is_secret_is_not_shown() -> None:
    assert repr(Way("h:1", {"username": "ann", "password": "secret"}, {})) == "Way('h:1')"


NOTHING = {
    "outside_user": None,
    "outside_passfile": None,
    "outside_token": None,
    "outside_secure": False,
    "outside_define": None,
    "first_timeout": None,
    "further_waits": None,
}


def given(function: Any, **options: Any) -> Way | None:
    """How the command came in."""
    seen: list[Way | None] = []

    def command(cluster: str = "default") -> None:
        seen.append(way.get())

    reachable(command)(cluster="default", **{"broker_address": None, **NOTHING, **options})
    assert way.get() is None, "it is of that command alone"
    return seen[0]


def test_a_command_comes_in_as_its_options_say(passfile: Path) -> None:
    assert given(None) is None
    found = given(None, broker_address="h:1", outside_user="ann", outside_passfile=passfile)
    assert found == Way("h:1", {"username": "ann", "password": "secret"}, {})
    assert given(None, broker_address="h:1", outside_token=passfile) == Way("h:1", {"token": "secret"}, {})
    passfile.write_text("# of MQ\nimq.imqcmd.password=other\n")
    found = given(None, broker_address="h:1", outside_user="ann", outside_passfile=passfile)
    assert found == Way("h:1", {"username": "ann", "password": "other"}, {})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"outside_user": "ann"}, "name one with -b host:port"),
        ({"broker_address": "h:1"}, "say as which user"),
        ({"broker_address": "h:1", "outside_user": "ann"}, "no terminal to ask"),
        ({"broker_address": "h:1", "outside_user": "ann", "outside_token": Path("t")}, "give no -u"),
        ({"broker_address": "h:1", "outside_token": Path("there.is.none")}, "token file there.is.none is not there"),
    ],
)
def test_what_cannot_be_right_is_said_first(
    options: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(UsageError, match=told):
        given(None, **options)


def test_a_command_without_a_cluster_to_reach_stays_as_it_is() -> None:
    def command(name: str) -> None:
        """Nothing of a cluster."""

    assert reachable(command) is command


@pytest.mark.parametrize("parameter", ["broker", "only"])
def test_minus_b_of_a_command_is_a_name_or_an_address(passfile: Path, parameter: str) -> None:
    """Whatever the command itself calls it."""
    seen: list[tuple[Any, Way | None]] = []

    def of_broker(broker: Annotated[str | None, typer.Option("-b")] = None, cluster: str = "default") -> None:
        seen.append((broker, way.get()))

    def of_one(only: Annotated[str | None, typer.Option("-b")] = None, cluster: str = "default") -> None:
        seen.append((only, way.get()))

    run = reachable({"broker": of_broker, "only": of_one}[parameter])
    assert "broker_address" not in inspect.signature(run).parameters
    given: dict[str, Any] = {**NOTHING, "cluster": "default"}
    run(**{parameter: "h:1"}, **{**given, "outside_user": "ann", "outside_passfile": passfile})
    run(**{parameter: "b2"}, **given)
    assert seen == [(None, Way("h:1", {"username": "ann", "password": "secret"}, {})), ("b2", None)]


def test_a_context_says_what_the_command_line_does_not(
    passfile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    kept = Context("h:7676", "ann", str(passfile), None, True, ("imqReconnectEnabled=false",))
    contexts.save(Contexts({"prod": kept}, "prod"))
    found = given(None)
    assert found is not None
    assert (found.address, found.secret["username"]) == ("mqs://h:7676", "ann")
    assert found.attributes == {"imqReconnectEnabled": "false"}
    other = given(None, outside_user="bob", outside_passfile=passfile)
    assert other is not None
    assert (other.address, other.secret["username"]) == ("mqs://h:7676", "bob")
    elsewhere = given(None, broker_address="g:1", outside_user="bob", outside_passfile=passfile)
    assert elsewhere is not None
    assert (elsewhere.address, elsewhere.attributes) == ("g:1", {})
