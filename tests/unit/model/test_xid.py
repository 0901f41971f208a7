"""The identifiers of distributed transactions (T-08): bounds, bytes and text."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import ConfigError
from raybroker.model.naming.xid import Xid

XIDS = st.builds(Xid, st.integers(0, 2**31 - 1), st.binary(min_size=1, max_size=64), st.binary(min_size=0, max_size=64))


@given(XIDS)
def test_bytes_and_text_bring_the_same_identifier_back(xid: Xid) -> None:
    assert Xid.unpack(xid.pack()) == xid
    assert Xid.parse(str(xid)) == xid
    assert len(xid.pack()) <= 134
    assert pickle.loads(pickle.dumps(xid)) == xid


@given(XIDS, XIDS)
def test_only_equal_identifiers_have_equal_bytes(one: Xid, other: Xid) -> None:
    assert (one.pack() == other.pack()) is (one == other)
    assert (str(one) == str(other)) is (one == other)


def test_the_text_is_readable_and_the_largest_fits() -> None:
    assert str(Xid(7, b"\x01\xab", b"")) == "7:01ab:"
    assert Xid.parse(" 7:01AB: ") == Xid(7, b"\x01\xab")
    assert len(Xid(2**31 - 1, b"g" * 64, b"b" * 64).pack()) == 134


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((-1, b"g", b""), "format_id = -1"),
        ((2**31, b"g", b""), "format_id = 2147483648"),
        (("1", b"g", b""), "format_id is an integer"),
        ((True, b"g", b""), "format_id is an integer"),
        ((1, b"", b""), "gtrid has 0 bytes; allowed: 1 to 64"),
        ((1, b"g" * 65, b""), "gtrid has 65 bytes"),
        ((1, b"g", b"b" * 65), "bqual has 65 bytes; allowed: 0 to 64"),
        ((1, "g", b""), "gtrid is bytes, not str"),
        ((1, b"g", None), "bqual is bytes, not NoneType"),
    ],
)
def test_a_part_out_of_bounds_is_named(arguments: tuple[Any, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Xid(*arguments)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 5, b"\0\0\0\0\x02\0g", b"\0\0\0\0\x01\0gg", b"\0\0\0\0\0\0", b"\xff\xff\xff\xff\x01\0g"]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="xid"):
        Xid.unpack(data)


@pytest.mark.parametrize("text", ["", "1:aa", "1:aa:bb:cc", "x:aa:bb", "-1:aa:bb", "1:a:bb", "1:gg:", "1::bb", "²:aa:"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="xid"):
        Xid.parse(text)
