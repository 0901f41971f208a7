"""A raybroker with the services amqp and httpadmin, as a process of its own.

    python -m tests.amqp_clients.broker FOLDER [PORT [NAME=VALUE …]]

It says "ready AMQP-PORT HTTP-PORT", and ends when its standard input does, as the reference in java/reference. ann and
bob may do everything, root administers, mute may connect and do nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import raybroker as rb
from raybroker.model.settings.setting_services import address_property
from raybroker.security.user_file import UserEntry, UserFile
from raybroker.wire.scram import ALGORITHMS, Verifier

RULES: Final = """version=JMQFileAccessControlModel/100
connection.NORMAL.allow.user=*
connection.ADMIN.allow.group=admin
queue.*.produce.allow.user=*
queue.*.consume.allow.user=*
queue.*.browse.allow.user=*
queue.*.produce.deny.user=mute
queue.*.consume.deny.user=mute
queue.*.browse.deny.user=mute
queue.create.allow.user=*
topic.*.produce.allow.user=*
topic.*.consume.allow.user=*
topic.*.produce.deny.user=mute
topic.*.consume.deny.user=mute
topic.create.allow.user=*
"""
VERIFIER: Final = ",".join(str(Verifier.from_password("secret", b"s" * 16, 4096, one)) for one in ALGORITHMS)
"""With the fewest rounds that clients take."""


def main(folder: Path, port: int, properties: dict[str, str]) -> None:
    """Serve until the input ends; ``properties``: further ones of the broker."""
    security = folder / "security"
    security.mkdir(parents=True, exist_ok=True)
    users = UserFile(security / "passwd")
    for name in ("ann", "bob", "mute", "root"):
        if name not in users.users():
            users.add(name, UserEntry(VERIFIER, "admin" if name == "root" else "user"))
    (security / "accesscontrol.properties").write_text(RULES)
    with rb.loopback(
        folder / "store",
        properties={
            "imq.service.activelist": "amqp,httpadmin",
            "imq.hostname": "127.0.0.1",
            "imq.portmapper.port": 0,
            address_property("amqp", "port"): port,
            "raybroker.security.dir": str(security),
            "imq.autocreate.destination.maxBytesPerMsg": -1,
            **properties,
        },
    ) as inside:
        ports = {row["service"]: row["port"] for row in inside.admin().list_services()}
        print("ready", ports["amqp"], ports["httpadmin"], flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[3:])
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, given)
