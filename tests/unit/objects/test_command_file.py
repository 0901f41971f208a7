"""Commands for administered objects from files, as MQ's imqobjmgr -i reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from raybroker.errors import ConfigError
from raybroker.objects.command_file import ObjectCommand, read_command

WHOLE = r"""
# A factory for queues
! of the shop
version=2.0
cmdtype=add
obj.type: qf
obj.lookupName = cn=注文\u0041
obj.readOnly=true
obj.attrs.imqAddressList=mq\://a\:7676/jms,\
    mq://b:7676/jms
objstore.attrs.java.naming.provider.url=ldap://directory/ou=objects,dc=example,dc=org
objstore.attrs.java.naming.security.principal=cn=admin
objstore.attrs.java.naming.security.credentials=hidden
"""


def _read(folder: Path, text: str) -> ObjectCommand:
    path = folder / "command"
    path.write_text(text)
    return read_command(path)


def test_a_whole_command_is_read(tmp_path: Path) -> None:
    found = _read(tmp_path, WHOLE)
    assert (found.verb, found.name, found.kind, found.read_only) == ("add", "cn=注文A", "qf", True)
    assert found.attributes == {"imqAddressList": "mq://a:7676/jms,mq://b:7676/jms"}
    assert found.store["java.naming.provider.url"] == "ldap://directory/ou=objects,dc=example,dc=org"
    found.check()


def test_no_password_is_shown(tmp_path: Path) -> None:
    found = _read(tmp_path, WHOLE + "obj.attrs.imqDefaultPassword=hidden\n")
    assert "hidden" not in str(found.shown())
    assert "hidden" not in repr(found)


def test_a_part_of_a_command_is_completed_by_the_command_line(tmp_path: Path) -> None:
    part = _read(
        tmp_path, "cmdtype=add\nobj.type=q\nobj.attrs.imqDestinationName=a\nobj.attrs.imqDestinationDescription=b"
    )
    said = ObjectCommand(None, "orders", None, {"imqDestinationName": "c"}, {"java.naming.provider.url": "/objects"})
    whole = said.over(part)
    whole.check()
    assert (whole.verb, whole.name, whole.kind) == ("add", "orders", "q")
    assert whole.attributes == {"imqDestinationName": "c", "imqDestinationDescription": "b"}
    with pytest.raises(ConfigError, match="the file has the command add, and the command line delete"):
        ObjectCommand("delete").over(part)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cmdtyp=add", "line 1: 'cmdtyp' is not known"),
        ("version=3.0", "2.0 or 1.0"),
        ("cmdtype=create", "one of add, delete, list, query, update"),
        ("\nobj.type=q\nobj.type=t", "line 3: obj.type is there twice"),
        ("obj.readOnly=maybe", "true or false"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _read(tmp_path, text)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there"):
        read_command(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_command(tmp_path / "bytes")


STORE = {"java.naming.provider.url": "/objects"}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (ObjectCommand(), "command None"),
        (ObjectCommand("add", None, "q", {}, STORE), "needs a lookup name"),
        (ObjectCommand("add", "a", None, {}, STORE), "needs a type"),
        (ObjectCommand("add", "a", "q", {"imqAckTimeout": "1"}, STORE), "no attribute of a destination"),
        (ObjectCommand("delete", "a", None, {"imqDestinationName": "b"}, STORE), "sets no attributes"),
        (ObjectCommand("list", "a", None, {}, STORE), "query shows one"),
        (ObjectCommand("update", "a", None, {}, STORE), "say what changes"),
        (ObjectCommand("query", "a", "z", {}, STORE), "type 'z'"),
        (ObjectCommand("query", "a", None, {}, {"java.naming.provider.ur": "/a"}), "java.naming.provider.url"),
        (ObjectCommand("query", "a", None, {}, {**STORE, "java.naming.factory.initial": "x"}), "RefFSContextFactory"),
        (
            ObjectCommand(
                "query", "a", None, {}, {**STORE, "java.naming.factory.initial": "com.sun.jndi.ldap.LdapCtxFactory"}
            ),
            "is not for",
        ),
        (
            ObjectCommand("query", "a", None, {}, {**STORE, "java.naming.security.authentication": "DIGEST-MD5"}),
            "none or simple",
        ),
    ],
)
def test_what_cannot_be_is_said_before_a_store_is_asked(command: ObjectCommand, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        command.check()
