"""Names of destinations (D-04), clusters, brokers and clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.model.errors import ConfigError, InvalidClientIDError, InvalidDestinationError
from raybroker.model.naming.names import (
    DESTINATION_NAME_BYTES_MAX,
    check_broker_name,
    check_client_id,
    check_cluster_name,
    check_destination_name,
    check_destination_type,
    check_template_name,
    check_topic_pattern,
    home_of_temporary,
    is_reserved_name,
    is_temporary_name,
    temporary_name,
)


@pytest.mark.parametrize(
    "name", ["orders", "JMSQueue", "_q", "$q", "q1", "a.b.c", "orders-eu", "mqtt_in", "mq", "MQ.x", "x" * 255]
)
def test_a_good_destination_name_comes_back_unchanged(name: str) -> None:
    assert check_destination_name(name) == name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "may not be empty"),
        ("1orders", "starts with '1'"),
        (".orders", "starts with '.'"),
        ("-orders", "starts with '-'"),
        ("my orders", "contains a blank"),
        (" orders", "contains a blank"),
        ("orders\n", "contains a blank"),
        ("a*b", "is a pattern of topics"),
        ("orders.>", "is a pattern of topics"),
        ("a/b", "contains '/'"),
        ("注文", "only ASCII"),
        ("caf\u00e9", "only ASCII"),
        ("a\x00b", "contains '\\x00'"),
        ("mq.orders", "reserved"),
        ("mq.", "reserved"),
        ("x" * 256, "at most 255 bytes"),
    ],
)
def test_a_bad_destination_name_is_refused_with_its_rule(name: str, rule: str) -> None:
    with pytest.raises(InvalidDestinationError) as caught:
        check_destination_name(name)
    assert rule in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("mq.metrics.*", "subscribe to each by its name"),
        ("mq.metrics.destination.queue.>", "have no patterns"),
        ("mq.**", "have no patterns"),
        ("mq.temp.t.b1.*", "have no patterns"),
        ("small.>", "leave the dot out"),
    ],
)
def test_a_pattern_that_matches_nothing_ever_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(InvalidDestinationError, match=why):
        check_topic_pattern(pattern)
    with pytest.raises(InvalidDestinationError, match=why):
        check_destination_name(pattern, allow_reserved=True, allow_wildcards=True)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidDestinationError, match="not int"):
        check_destination_name(7)


def test_the_brokers_own_names_pass_only_when_asked_for() -> None:
    assert check_destination_name("mq.sys.dmq", allow_reserved=True) == "mq.sys.dmq"
    assert is_reserved_name("mq.sys.dmq")
    assert not is_reserved_name("mqtt")


def test_a_pattern_passes_only_where_it_may_stand() -> None:  # D-05
    assert check_destination_name("prices.*", allow_wildcards=True) == "prices.*"
    assert check_destination_name("prices", allow_wildcards=True) == "prices"
    for bad in ("prices.>", "a*b", "a b.*"):
        with pytest.raises(InvalidDestinationError):
            check_destination_name(bad, allow_wildcards=True)


def test_temporary_names_are_the_broker_s_own_and_tell_the_type() -> None:  # D-23
    queue, topic = temporary_name("queue", "b.1", "1a2b"), temporary_name("topic", "b2", "1a2b")
    assert (queue, topic) == ("mq.temp.q.b.1.1a2b", "mq.temp.t.b2.1a2b")
    assert (home_of_temporary(queue), home_of_temporary(topic), home_of_temporary("orders")) == ("b.1", "b2", "")
    for name in (queue, topic):
        assert is_temporary_name(name)
        assert check_destination_name(name, allow_reserved=True) == name
        with pytest.raises(InvalidDestinationError, match="reserved"):
            check_destination_name(name)
    assert not is_temporary_name("mq.sys.dmq")
    with pytest.raises(AssertionError):
        temporary_name("queue", "b1", "a.b")


@given(st.text(max_size=300))
def test_any_text_is_either_a_safe_name_or_refused(text: str) -> None:
    try:
        name = check_destination_name(text)
    except InvalidDestinationError:
        return
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set("/\\ *>:?\"'")
    assert len(name.encode()) <= DESTINATION_NAME_BYTES_MAX


def test_destination_types_have_the_short_forms_of_the_command_line() -> None:
    assert [check_destination_type(kind) for kind in ("q", "t", "queue", "topic")] == ["queue", "topic"] * 2
    with pytest.raises(InvalidDestinationError, match="use 'queue' or 'topic'"):
        check_destination_type("stream")
    with pytest.raises(InvalidDestinationError):
        check_destination_type(None)


@pytest.mark.parametrize("check", [check_cluster_name, check_broker_name, check_template_name])
def test_cluster_broker_and_template_names_are_one_path_safe_word(check) -> None:  # type: ignore[no-untyped-def]
    assert check("orders-cluster_1.eu") == "orders-cluster_1.eu"
    for bad in ("", "..", "a/b", "a b", "-a", ".a", "é", "x" * 64, None):
        with pytest.raises(ConfigError):
            check(bad)


def test_a_client_id_is_printable_text_without_blanks_at_its_ends() -> None:
    assert check_client_id("billing 請求") == "billing 請求"
    for bad in ("", " x", "x\t", "a\nb", "x" * 256, 5):
        with pytest.raises(InvalidClientIDError):
            check_client_id(bad)
