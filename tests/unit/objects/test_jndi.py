"""Administered objects as a jndi.properties for Qpid JMS."""

from __future__ import annotations

import pytest

from raybroker.errors import ConfigError
from raybroker.objects.administered import AdministeredObject
from raybroker.objects.jndi import CONTEXT_FACTORY, Written, jndi_properties

ONE = ("amqp://a:5672",)
TWO = ("amqp://a:5672", "amqps://b:5671")


def made(name: str, kind: str, **attributes: object) -> AdministeredObject:
    return AdministeredObject.checked(name, kind, attributes)


def written(*objects: AdministeredObject, urls: tuple[str, ...] = ONE) -> Written:
    return jndi_properties(objects, lambda factory: urls)


def factory_url(urls: tuple[str, ...] = ONE, **attributes: object) -> str:
    lines = written(made("cf", "cf", **attributes), urls=urls).text.splitlines()
    return next(line for line in lines if line.startswith("connectionfactory.")).removeprefix("connectionfactory.cf = ")


def test_each_kind_of_object_is_a_line_in_the_order_of_their_names() -> None:
    found = written(
        made("topics/news", "t", imqDestinationName="news"),
        made("cf/orders", "cf", imqReconnectEnabled="false"),
        made("queues/orders", "q", imqDestinationName="orders"),
        made("qf", "qf", imqReconnectEnabled="false"),
    )
    assert found.text.splitlines() == [
        f"java.naming.factory.initial = {CONTEXT_FACTORY}",
        "connectionfactory.cf/orders = amqp://a:5672",
        "connectionfactory.qf = amqp://a:5672",
        "queue.queues/orders = orders",
        "topic.topics/news = news",
    ]
    assert found.left_out == ()


def test_a_factory_that_reconnects_does_so_by_failover() -> None:
    assert factory_url() == "failover:(amqp://a:5672)"
    assert factory_url(imqReconnectEnabled="false") == "amqp://a:5672"
    assert factory_url(TWO, imqReconnectEnabled="false") == "failover:(amqp://a:5672,amqps://b:5671)"
    options = {"imqReconnectAttempts": 3, "imqReconnectInterval": 50, "imqAddressListBehavior": "RANDOM"}
    assert factory_url(TWO, **options) == (
        "failover:(amqp://a:5672,amqps://b:5671)?failover.maxReconnectAttempts=3&failover.reconnectDelay=50"
        "&failover.useReconnectBackOff=false&failover.randomize=true"
    )


def test_attributes_are_options_where_the_client_has_such() -> None:
    options = {"imqConfiguredClientID": "shop & co", "imqDefaultUsername": "ann", "imqConsumerFlowLimit": 7}
    assert factory_url(**options) == (
        "failover:(amqp://a:5672)?jms.clientID=shop%20%26%20co&jms.username=ann&jms.prefetchPolicy.all=7"
    )
    assert factory_url(imqReconnectEnabled="false", imqAckTimeout=5000) == "amqp://a:5672?jms.requestTimeout=5000"
    assert factory_url(TWO, imqSocketConnectTimeout=900) == (
        "failover:(amqp://a:5672?transport.connectTimeout=900,amqps://b:5671?transport.connectTimeout=900)"
    )
    assert factory_url(imqConsumerFlowLimit=1_000_000).endswith("jms.prefetchPolicy.all=32767")


def test_what_the_client_cannot_do_is_named_and_passwords_are_never_written() -> None:
    found = written(
        made("cf", "cf", imqDefaultPassword="hidden", imqConsumerFlowThreshold=20, imqAddressList="mq://a"),
        made("xa", "xcf"),
    )
    assert "hidden" not in found.text
    assert found.left_out == (
        "cf: Qpid JMS has nothing like imqConsumerFlowThreshold, imqDefaultPassword",
        "xa: XAConnectionFactory; Qpid JMS has no distributed transactions",
    )
    assert found.text.startswith(f"# {found.left_out[0]}\n# {found.left_out[1]}\njava.naming")


@pytest.mark.parametrize(
    ("name", "key"),
    [("cn=orders", r"cn\=orders"), ("a b:c", r"a\ b\:c"), ("größe", r"gr\u00f6\u00dfe"), ("🚀", r"\ud83d\ude80")],
)
def test_names_are_escaped_as_java_reads_properties(name: str, key: str) -> None:
    assert f"queue.{key} = x" in written(made(name, "q", imqDestinationName="x")).text.splitlines()


def test_a_factory_that_leads_nowhere_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"factory 'cf' has no address"):
        written(made("cf", "cf"), urls=())
