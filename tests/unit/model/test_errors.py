"""Every error tells a caller what to know before retrying, and says so on both sides of a process boundary."""

from __future__ import annotations

import pickle

import pytest

from raybroker.model import errors
from raybroker.model.errors import BY_CODE, BrokerError, StoreDamagedError, XAError, from_code

CLASSES = sorted(BY_CODE.values(), key=lambda kind: kind.__name__)
CODES = """
    broker broker_gone config connection_ended connection_lost destination_paused foreign_object illegal_state
    invalid_client_id invalid_destination invalid_selector listener local_destination login_limit
    master_unavailable memory_low message_format message_too_large no_cluster no_object no_xa not_admitted not_open
    not_supported object_exists order protocol quota_exceeded resource_allocation security service_closed stale starting
    store store_damaged store_full timeout transaction_in_progress transaction_rolled_back unknown_definition unreadable
    xa xa_rolled_back xa_state
"""


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_survives_pickling(kind: type[BrokerError]) -> None:
    error = kind("queue 'orders' is full", 7)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    code = 7 if issubclass(kind, XAError) else kind.code
    assert (copy.args, str(copy), copy.code) == (error.args, "queue 'orders' is full", code)


def test_the_table_holds_every_error_of_the_module_under_its_own_code() -> None:
    in_module = {thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, BrokerError)}
    assert set(BY_CODE.values()) == in_module
    assert {kind.code for kind in in_module} == set(BY_CODE)
    assert len(BY_CODE) == len(in_module)


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind is not BrokerError])
def test_every_error_has_a_code_of_its_own_and_a_text_for_users(kind: type[BrokerError]) -> None:
    assert "code" in vars(kind)
    assert kind.__doc__


def test_codes_stay_when_a_class_is_renamed() -> None:
    assert sorted(BY_CODE) == CODES.split()


def test_an_error_that_travelled_as_code_and_text_is_the_same_error() -> None:
    error = from_code("store_damaged", "segment 3 at 4096")
    assert type(error) is StoreDamagedError
    assert str(error) == "segment 3 at 4096"


def test_an_unknown_code_from_a_newer_peer_is_a_plain_broker_error() -> None:
    assert type(from_code("of_tomorrow", "text")) is BrokerError


def test_an_error_without_a_text_shows_its_code() -> None:
    assert str(errors.OrderError()) == "order"
