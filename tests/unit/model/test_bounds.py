"""The limits of different layers fit into each other."""

from __future__ import annotations

from raybroker.model.blocks.block import BLOCK_BYTES_MAX
from raybroker.model.bounds import (
    MESSAGE_BYTES_MAX,
    MESSAGE_HEADERS_BYTES_MAX,
    SCHEDULED_BYTES_MAX,
    message_bytes_max,
)
from raybroker.model.settings.settings import lookup
from raybroker.wire.native.frames import CONTROL_BYTES_MAX, FRAME_BYTES_MAX

BLOCK_HEAD_BYTES_GENEROUS = 4096


def test_the_largest_message_with_its_headers_fits_into_a_block_and_the_block_into_a_frame() -> None:
    assert MESSAGE_BYTES_MAX + MESSAGE_HEADERS_BYTES_MAX + BLOCK_HEAD_BYTES_GENEROUS <= BLOCK_BYTES_MAX
    assert BLOCK_BYTES_MAX < FRAME_BYTES_MAX


def test_the_largest_message_of_a_schedule_fits_into_a_request_with_its_headers() -> None:
    assert MESSAGE_HEADERS_BYTES_MAX + BLOCK_HEAD_BYTES_GENEROUS < SCHEDULED_BYTES_MAX
    assert SCHEDULED_BYTES_MAX + BLOCK_HEAD_BYTES_GENEROUS < CONTROL_BYTES_MAX


def test_no_setting_allows_a_message_that_cannot_travel() -> None:
    setting = lookup("imq.message.max_size", "broker")
    assert setting.default == setting.high == MESSAGE_BYTES_MAX
    assert message_bytes_max(-1) == MESSAGE_BYTES_MAX
    assert message_bytes_max(1 << 40) == MESSAGE_BYTES_MAX
    assert message_bytes_max(0) == 0
