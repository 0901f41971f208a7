"""``send`` and ``receive``: single messages by hand, and small streams through pipes."""

from __future__ import annotations

import base64
import json as json_library
import sys
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.objects import Cluster, Json, properties

PREFETCH_MAX: Final = 1000


class BodyType(StrEnum):
    """How BODY is understood."""

    text = "text"
    json = "json"
    bytes = "bytes"


def send(
    destination: Annotated[str, typer.Argument(metavar="DEST", help="The queue.", show_default=False)],
    body: Annotated[
        str | None, typer.Argument(metavar="[BODY|-]", help="The message; - or nothing: standard input.")
    ] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="Send it so many times.", min=1)] = 1,
    lines: Annotated[bool, typer.Option("--lines", help="One message for each line of the body.")] = False,
    property: Annotated[  # noqa: A002
        list[str] | None,
        typer.Option("--property", "-p", metavar="K=V", help="A property; numbers and true/false as such. Repeatable."),
    ] = None,
    type: Annotated[BodyType, typer.Option("--type", help="What the body is.")] = BodyType.text,  # noqa: A002
    persistent: Annotated[bool, typer.Option("--persistent/--non-persistent", help="Stored when this ends.")] = True,
    cluster: Cluster = "default",
) -> None:
    """Send messages: raybroker send orders hello   or   seq 1000 | raybroker send orders - --lines

    A persistent message is on disk when the command ends. The queue is created when it is missing and the broker's
    imq.autocreate.queue allows it.
    """
    given = properties(property)
    bodies = [_body(part, type) for part in _parts(body, type, lines)] * count
    with connecting.connected(cluster) as connection:
        producer = connection.session().producer(destination, persistent=persistent)
        futures = [producer.send_async(one, properties=given) for one in bodies]
        for future in futures:
            future.result()
        producer.close()
    output.say(f"sent {len(bodies)} message{'' if len(bodies) == 1 else 's'} to {destination}")


def _parts(body: str | None, kind: BodyType, lines: bool) -> list[str | bytes]:
    if body is not None and body != "-":
        return [*body.splitlines()] if lines else [body]
    raw = sys.stdin.buffer.read()
    if kind is BodyType.bytes:
        return [*raw.splitlines()] if lines else [raw]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8 text; send it with --type bytes") from None
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
    destination: Annotated[str, typer.Argument(metavar="DEST", help="The queue.", show_default=False)],
    count: Annotated[int, typer.Option("--count", metavar="N", help="Take so many; 0: all that come.", min=0)] = 1,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="S", help="Longest wait for each message.", min=0)
    ] = None,
    cluster: Cluster = "default",
    json: Json = False,
) -> None:
    """Take messages off a queue and print them, one a line.

    A message is acknowledged after it was printed. Without --timeout it waits until there are enough; with it, the
    command ends with code 1 when not one message came. --json prints one object a line, with id, properties and more.
    """
    taken = 0
    with connecting.connected(cluster, started=True) as connection:
        session = connection.session(ack="client")
        consumer = session.consumer(destination, prefetch=min(count or PREFETCH_MAX, PREFETCH_MAX))
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
    if not taken:
        output.error(f"no message came to {destination} within {timeout:g} s")
        raise typer.Exit(Exit.REFUSED)


def _show(message: Any, json: bool) -> None:
    body = message.body
    if json:
        row = {
            "id": message.id, "body": _plain(body), "properties": message.properties, "timestamp": message.timestamp,
            "persistent": message.persistent, "redelivered": message.redelivered,
            "delivery_count": message.delivery_count, "correlation_id": message.correlation_id,
            "reply_to": message.reply_to, "type": message.type,
        }  # fmt: skip
        print(json_library.dumps(row, default=_plain))
    elif isinstance(body, bytes | bytearray | memoryview):
        sys.stdout.flush()
        sys.stdout.buffer.write(bytes(body) + b"\n")
    else:
        print(body if isinstance(body, str) else json_library.dumps(body, default=_plain))


def _plain(value: Any) -> Any:
    """Bytes for JSON: as base64 under that name."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    return value
