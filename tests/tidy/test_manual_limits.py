"""The bounds that the manual names are those of the source."""

from __future__ import annotations

import re

from raybroker.client.listener import listener, pool
from raybroker.content import bodies, headers
from raybroker.core.selector import limits as selector
from raybroker.model import bounds
from raybroker.model.naming import names, units
from raybroker.model.settings.settings import SETTINGS, dead_message_queue
from raybroker.model.sizes import KIB, MIB, UNLIMITED
from tests.tidy.source import ROOT

PAGE = "raybroker/manual/limits.md"


def table() -> dict[str, str]:
    """What is bounded → the bound."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    return dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", text, flags=re.MULTILINE))


def expected() -> dict[str, str]:
    def default(name: str) -> int:
        return int(SETTINGS["destination", name].default)  # type: ignore[arg-type]

    def auto(name: str) -> int:
        assert default(name) == UNLIMITED
        return int(SETTINGS["broker", f"imq.autocreate.destination.{name}"].default)  # type: ignore[arg-type]

    assert units.UNIT_CHARS_MAX == headers.DEDUP_ID_CHARS_MAX
    assert listener.CONCURRENCY_MAX == pool.INSTANCES_MAX
    return {
        "body of one message": f"{bounds.MESSAGE_BYTES_MAX // MIB} MiB",
        "body of one message by reference": f"{SETTINGS['broker', 'raybroker.reference.max_size'].default // MIB} MiB",  # type: ignore[operator]
        "headers and properties of one message": f"{bounds.MESSAGE_HEADERS_BYTES_MAX // KIB} KiB",
        "properties of one message": f"{headers.PROPERTIES_MAX:,}",
        "lists and maps inside each other in a body": f"{bodies.NESTING_MAX:,} deep",
        "message of a recurring schedule": f"{bounds.SCHEDULED_BYTES_MAX // KIB} KiB",
        "schedules of one destination": f"{default('maxNumSchedules')}",
        "name of a destination": f"{names.DESTINATION_NAME_BYTES_MAX} bytes",
        "client id": f"{names.CLIENT_ID_BYTES_MAX} bytes",
        "unit of order, deduplication id": f"{units.UNIT_CHARS_MAX} characters",
        "selector": f"{selector.SELECTOR_CHARS_MAX:,} characters, parentheses {selector.NESTING_MAX} deep,"
        f" {selector.IN_LIST_MAX:,} texts in one IN",
        "messages of a destination": f"no bound; auto-created {auto('maxNumMsgs'):,}",
        "bytes of a destination": f"no bound; auto-created {auto('maxTotalMsgBytes') // MIB} MiB",
        "one message of a destination": f"no bound; auto-created {auto('maxBytesPerMsg') // KIB} KiB",
        "producers of a destination": f"{default('maxNumProducers')}",
        "all messages of a broker": "no bound",
        "dead messages kept": f"the latest {dead_message_queue().maxNumMsgs:,}",
        "failures before a message is dead": f"{default('redeliveryLimit')}",
        "deduplication ids remembered": f"{default('duplicateIdsMax'):,}",
        "instances of a pool, calls at once in one": f"{listener.CONCURRENCY_MAX:,} each",
        "messages of one batch of a listener": f"{listener.BATCH_MAX:,}",
    }


def test_the_bounds_of_the_page_are_those_of_the_source() -> None:
    found = table()
    del found["what"]
    assert found == expected()
