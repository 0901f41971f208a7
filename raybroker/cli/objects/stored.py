"""Messages in destinations on the command line: list, delete, move, retry, export and import msg."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raybroker.admin.verb_types import MessagePage
from raybroker.cli import output
from raybroker.cli.answers import things
from raybroker.cli.command import command
from raybroker.cli.grid_words import Ids, Json, Name, Selector, Type, TypeText, moment
from raybroker.cli.objects import archive
from raybroker.cli.objects.messages import plain_body
from raybroker.client.admin.admin import Admin, pages
from raybroker.model.blocks.block import Block
from raybroker.model.errors import BrokerError
from raybroker.model.listing import Row
from raybroker.model.naming.names import DEAD_COMMENT, DEAD_EXCEPTION, DEAD_MESSAGE_QUEUE, DEAD_REASON
from raybroker.wire.native.frames import CONTROL_BYTES_MAX

COLUMNS: Final = output.columns(
    "id, state, time, priority: prio, delivery_count: deliveries, size: bytes, preview: body, why: cause"
)
LESS: Final = ("size", "priority", "delivery_count", "state")
"""What a narrow terminal leaves out, in this order, so that id, time, body and cause stay: --json has all."""
PREVIEW_CHARS: Final = 40
WHY_CHARS: Final = 80
PAGE: Final = 500
BODY_BYTES: Final = 65536
"""Bytes of each body that --json shows."""
IMPORT_BYTES: Final = CONTROL_BYTES_MAX // 2
"""Blocks that go into one call; one message alone may be larger."""

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file.", show_default=False)]


@command("list", "msg")
def list_msg(
    admin: Admin,
    name: Name,
    type: Type = "q",
    selector: Selector = None,
    most: Annotated[int, typer.Option("--max", metavar="N", help="At most so many; 0: all.", min=0)] = 100,
    json: Json = False,
) -> None:
    """Look at the messages of a destination, oldest first; nothing is taken.

    Of dead messages the last column says why: the reason, and the exception of their consumer if there was one. --json
    shows all properties, with the exception's traceback as RAYBROKER_TRACEBACK.
    """
    rows = _browse(admin, type, name, selector, most, BODY_BYTES if json else 4 * PREVIEW_CHARS)
    if json:
        output.as_json([{**row, "body": plain_body(row["body"])} for row in rows])
    else:
        shown = [_shown(row) for row in rows]
        columns = {key: title for key, title in COLUMNS.items() if key != "why" or any(row["why"] for row in shown)}
        output.table(shown, columns, empty="no messages", less=LESS)


def _browse(admin: Admin, kind: TypeText, name: str, selector: str | None, most: int, body_bytes: int) -> list[Row]:
    found: list[Row] = []

    def ask_for(start: Any) -> MessagePage:
        page = min(PAGE, most - len(found)) if most else PAGE
        return admin.browse_messages(kind, name, selector, start=start, max=page, body_bytes_max=body_bytes)

    for page in pages(ask_for):
        found += page["messages"]
        if most and len(found) >= most:
            break
    return found[:most] if most else found


def _shown(row: Row) -> Row:
    body = row["body"]
    text = body if isinstance(body, str) else repr(body)
    return {
        **row,
        "time": moment(row["timestamp"]),
        "preview": _cut(text, PREVIEW_CHARS),
        "why": _cut(_why_dead(row["properties"]), WHY_CHARS),
    }


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _why_dead(properties: dict[str, Any]) -> str:
    """Reason and exception of a dead message, or the broker's comment without an exception; "" for any other."""
    reason = properties.get(DEAD_REASON)
    if reason is None:
        return ""
    more = properties.get(DEAD_EXCEPTION) or properties.get(DEAD_COMMENT)
    return f"{reason}: {more}" if more else str(reason)


@command("retry", "msg")
def retry_msg(
    admin: Admin,
    name: Annotated[
        str, typer.Option("-n", "--name", metavar="NAME", help="The queue they died into.")
    ] = DEAD_MESSAGE_QUEUE,
    type: Type = "q",
    selector: Selector = None,
    id: Ids = None,
) -> None:
    """Send dead messages back to where each died: raybroker retry msg -s "price > 5"

    One that died in a subscription of a topic goes to that alone. One whose destination or subscription is gone stays.
    """
    count = admin.retry_messages(type, name, selector, id)
    rows = _browse(admin, type, name, selector, 0, 0)
    output.say(f"sent {things(count, 'message')} of {type} {name} back")
    left = sum(row["state"] != "delivered" and (not id or row["id"] in id) for row in rows)
    if left:
        output.say(f"{things(left, 'message')} not sent back: the destination or the subscription is gone")


@command("export", "msg")
def export_msg(
    admin: Admin,
    file: File,
    name: Name,
    type: Type = "q",
    selector: Selector = None,
    force: Annotated[bool, typer.Option("-f", "--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Copy messages to a file: raybroker export msg -n orders orders.msgs"""
    archive.check_target(file, overwrite=force)
    counted = 0

    def blocks(admin: Admin) -> Iterator[bytes]:
        nonlocal counted
        for page in pages(lambda start: admin.export_messages(type, name, selector, start=start)):
            for block in page["blocks"]:
                counted += Block(block).count
                yield bytes(block)

    size = archive.write(file, blocks(admin), overwrite=force)
    output.say(f"exported {things(counted, 'message')} of {type} {name} to {file} ({size} bytes)")


@command("import", "msg")
def import_msg(admin: Admin, file: File, name: Name, type: Type = "q") -> None:
    """Put the messages of a file into a destination: raybroker import msg -n orders orders.msgs

    The file is checked before anything is sent. A destination that has no room for all of a large file may get some of
    it: then it is said how many.
    """
    archive.check(file)
    count = 0
    for blocks in _batches(archive.read(file)):
        try:
            count += admin.import_messages(type, name, blocks)
        except BrokerError:
            if count:
                output.error(f"{things(count, 'message')} of {file} are in {type} {name} already, the first ones")
            raise
    output.say(f"imported {things(count, 'message')} into {type} {name}")


def _small(block: bytes) -> Iterator[bytes]:
    """The block, or blocks of a part of its messages each."""
    count = 1 if len(block) <= IMPORT_BYTES else Block(block).count
    if count == 1:
        yield block
        return
    half = count // 2
    for start, end in ((0, half), (half, count)):
        yield from _small(b"".join(Block(block).part(start, end)))


def _batches(blocks: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for block in chain.from_iterable(map(_small, blocks)):
        if batch and sum(map(len, batch)) + len(block) > IMPORT_BYTES:
            yield batch
            batch = []
        batch.append(block)
    if batch:
        yield batch
