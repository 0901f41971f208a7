"""Sizes as the seeds write them (B-13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import ConfigError
from raybroker.model.sizes import SIZE_BYTES_MAX, format_size_bytes, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1600", 1600),
        ("1600b", 1600),
        ("16k", 16384),
        ("16m", 16777216),
        ("70m", 73400320),
        ("-1", -1),
        ("0", 0),
        ("16K", 16384),
        ("16M", 16777216),
        ("1600B", 1600),
        (" 10k ", 10240),
        (1600, 1600),
        (-1, -1),
    ],
)
def test_the_cases_of_the_seeds(text: object, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "k", "1.5k", "16 k", "16kb", "16x", "-2", "-1k", "1e3", "0x10", "１６", True, None, 1.5, -2]
)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        parse_size_bytes(text)


def test_gigabytes_are_refused_with_the_way_to_write_them() -> None:
    with pytest.raises(ConfigError, match="1024m"):
        parse_size_bytes("1g")


def test_a_size_past_64_bits_is_refused() -> None:
    assert parse_size_bytes(str(SIZE_BYTES_MAX)) == SIZE_BYTES_MAX
    for text in (str(SIZE_BYTES_MAX + 1), "9999999999999999999m"):
        with pytest.raises(ConfigError, match="too large"):
            parse_size_bytes(text)


def test_sizes_are_shown_with_the_largest_suffix_that_is_exact() -> None:
    assert [format_size_bytes(size) for size in (73400320, 10240, 1600, 0, -1)] == ["70m", "10k", "1600", "0", "-1"]


@given(st.integers(-1, SIZE_BYTES_MAX))
def test_what_is_shown_reads_back_as_the_same_size(size: int) -> None:
    assert parse_size_bytes(format_size_bytes(size)) == size
