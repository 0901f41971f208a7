"""``send`` and ``receive``: single messages by hand, and small streams through pipes."""

from __future__ import annotations

import base64
import json as json_library
import sys
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli import grid_words as objects
from raybroker.cli.answers import things
from raybroker.cli.checks import checked_name
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.grid_words import Cluster, Json, Selector, duration_ms, properties
from raybroker.cli.outside import way
from raybroker.client.destinations import SYSTEM_TOPICS
from raybroker.model.errors import InvalidDestinationError
from raybroker.model.naming.nearest import nearest
from raybroker.model.naming.wildcard import is_pattern

PREFETCH_MAX: Final = 1000


class BodyType(StrEnum):
    """How BODY is understood."""

    text = "text"
    json = "json"
    bytes = "bytes"


def _type_of_destination(text: str) -> str:
    """'queue' or 'topic'; raises UsageError, which knows what was meant by the type of a body."""
    if text in list(BodyType):
        raise UsageError(f"--type {text}: it is the destination's type, q or t; the body's is --body-type {text}")
    return objects.destination_type(text)


DestinationType = Annotated[
    str,
    typer.Option(
        "-t",
        "--type",
        "--destination-type",
        metavar="q|t",
        help="Type of the destination: queue or topic.",
        parser=_type_of_destination,
    ),
]


def send(
    destination: Annotated[str, typer.Argument(metavar="DEST", help="The queue or topic.", show_default=False)],
    body: Annotated[
        str | None, typer.Argument(metavar="[BODY|-]", help="The message; - or nothing: standard input.")
    ] = None,
    destination_type: DestinationType = "q",
    count: Annotated[int, typer.Option("--count", metavar="N", help="Send it so many times.", min=1)] = 1,
    lines: Annotated[bool, typer.Option("--lines", help="One message for each line of the body.")] = False,
    property: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="K=V", help="A property; numbers and true/false as such. Repeatable."),
    ] = None,
    body_type: Annotated[BodyType, typer.Option("--body-type", help="What the body is.")] = BodyType.text,
    persistent: Annotated[bool, typer.Option("--persistent/--non-persistent", help="Stored when this ends.")] = True,
    ttl: Annotated[
        str | None, typer.Option("--ttl", metavar="TIME", help="Expires after so long, such as 10m.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="TIME", help="Can be received only after so long, such as 30s.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="0-9", help="9 is the highest.", min=0, max=9)
    ] = None,
    cluster: Cluster = "default",
) -> None:
    """Send messages: raybroker send orders hello   or   seq 1000 | raybroker send orders - --lines

    A persistent message is on disk when the command ends. The destination is created when it is missing and the
    broker's imq.autocreate.queue or imq.autocreate.topic allows it. A topic with nobody subscribed keeps nothing.
    """
    given = properties(property)
    checked_name("DEST", destination, wildcards=destination_type == "topic")
    options: dict[str, Any] = {"persistent": persistent}
    if ttl is not None:
        options["ttl_ms"] = duration_ms("--ttl", ttl)
    if delay is not None:
        options["delivery_delay_ms"] = duration_ms("--delay", delay)
    if priority is not None:
        options["priority"] = priority
    bodies = [_body(part, body_type) for part in _parts(body, body_type, lines)] * count
    with connecting.connected(cluster) as connection:
        session = connection.session()
        producer = session.producer(_destination(session, destination_type, destination), **options)
        futures = [producer.send_async(one, properties=given) for one in bodies]
        for future in futures:
            future.result()
        producer.close()
    output.say(f"sent {things(len(bodies), 'message')} to {destination}")


def _destination(session: Any, kind: str, name: str) -> Any:
    return session.topic(name) if kind == "topic" else session.queue(name)


def _parts(body: str | None, kind: BodyType, lines: bool) -> list[str | bytes]:
    if body is not None and body != "-":
        return [*body.splitlines()] if lines else [body]
    raw = sys.stdin.buffer.read()
    if not raw and not lines:
        raise UsageError('standard input is empty, and nothing was sent; an empty message is: send DEST ""')
    if kind is BodyType.bytes:
        return [*raw.splitlines()] if lines else [raw]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8 text; send it with --body-type bytes") from None
    return [*text.splitlines()] if lines else [text.removesuffix("\n")]


def _body(part: str | bytes, kind: BodyType) -> Any:
    if kind is BodyType.bytes:
        return part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
    if kind is BodyType.json:
        try:
            return json_library.loads(part)
        except ValueError as error:
            raise UsageError(f"the body is not JSON: {error}") from None
    return part


def receive(
    destination: Annotated[str, typer.Argument(metavar="DEST", help="The queue or topic.", show_default=False)],
    destination_type: DestinationType = "q",
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", help="Take so many; 0: all that come.", min=0)
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="S", help="Longest wait for each message.", min=0)
    ] = None,
    selector: Selector = None,
    browse: Annotated[bool, typer.Option("--browse", help="Look at a queue and take nothing.")] = False,
    create: Annotated[bool, typer.Option("--create", help="Make the destination when it is missing.")] = False,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Take messages off a queue, or hear a topic, and print them, one a line. The destination has to exist.

    A message is acknowledged after it was printed. Without --count it takes one, and --browse shows all. Without
    --timeout it waits until there are enough; with it, the command ends with code 1 when not one message came. --json
    prints one object a line, with id, properties and more. From outside (-b) nobody looks whether the destination is
    there: it is made where the user may.
    """
    checked_name("DEST", destination, wildcards=destination_type == "topic")
    if browse and destination_type == "topic":
        raise UsageError("--browse: a topic keeps nothing to look at; browse a queue")
    if browse and timeout is not None:
        raise UsageError("--browse: it waits for nothing; leave --timeout out")
    with connecting.connected(cluster, started=True) as connection:
        if not create and not is_pattern(destination) and way.get() is None:
            _require_there(connection.admin(), destination_type, destination)
        session = connection.session(ack="client")
        place = _destination(session, destination_type, destination)
        if browse:
            taken = _look(session, place, selector, count or 0, json)
        else:
            taken = _take(session, place, selector, 1 if count is None else count, timeout, json)
    if not taken:
        within = "" if browse else f" within {timeout:g} s"
        output.error(f"no message {'is in' if browse else 'came to'} {destination}{within}")
        raise typer.Exit(Exit.REFUSED)


def _require_there(admin: Any, kind: str, name: str) -> None:
    """Raises InvalidDestinationError, naming the nearest one, when there is no such destination."""
    try:
        admin.query_destination(kind, name)
    except InvalidDestinationError:
        if name.startswith(SYSTEM_TOPICS):
            return
        there = [row["name"] for row in admin.list_destinations(kind)]
        near = nearest(name, there)
        hint = f"; the nearest is {near}" if near else ""
        raise InvalidDestinationError(f"there is no {kind} {name}{hint}; --create makes it") from None


def _take(session: Any, place: Any, selector: str | None, count: int, timeout: float | None, json: bool) -> int:
    """Print and acknowledge ``count`` messages, 0 all that come; how many came."""
    taken = 0
    chosen = {} if selector is None else {"selector": selector}
    consumer = session.consumer(place, prefetch=min(count or PREFETCH_MAX, PREFETCH_MAX), **chosen)
    while not count or taken < count:
        wanted = PREFETCH_MAX if not count else min(count - taken, PREFETCH_MAX)
        messages = consumer.receive_many(wanted, timeout=timeout)
        if not messages:
            break
        for message in messages:
            _show(message, json)
        sys.stdout.flush()
        messages[-1].acknowledge()
        taken += len(messages)
    return taken


def _look(session: Any, place: Any, selector: str | None, count: int, json: bool) -> int:
    """Print up to ``count`` messages, 0 all, and leave them; how many there were."""
    seen = 0
    for message in session.browser(place, selector=selector):
        _show(message, json)
        seen += 1
        if seen == count:
            break
    sys.stdout.flush()
    return seen


def _show(message: Any, json: bool) -> None:
    body = message.body
    if json:
        row = {
            "id": message.id,
            "body": plain_body(body),
            "properties": message.properties,
            "timestamp": message.timestamp,
            "persistent": message.persistent,
            "redelivered": message.redelivered,
            "delivery_count": message.delivery_count,
            "correlation_id": message.correlation_id,
            "reply_to": message.reply_to,
            "type": message.type,
            "priority": message.priority,
            "expiration": message.expiration,
        }
        print(json_library.dumps(row, default=_for_json))
    elif isinstance(body, bytes | bytearray | memoryview):
        sys.stdout.flush()
        sys.stdout.buffer.write(bytes(body) + b"\n")
    else:
        print(body if isinstance(body, str) else json_library.dumps(body, default=_for_json))


def _for_json(value: Any) -> Any:
    """Bytes as base64, and a destination to answer to as its name."""
    return plain_body(value) if isinstance(value, bytes | bytearray | memoryview) else _as_json(value)


def plain_body(value: Any) -> Any:
    """Bytes for JSON: as base64 under that name."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    return value


def _as_json(value: Any) -> Any:
    """Arrays as lists, and whatever else JSON has not as its text: times, UUID, Decimal."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
