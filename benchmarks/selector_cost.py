"""What a selector costs a message, without a broker around it: ``python -m benchmarks.selector_cost``.

A block is taken as it comes from a producer, encoded bytes; its headers are decoded, and a selector of three
comparisons is asked which of its messages it wants.  All three are looked at for each message, and half of the
messages are wanted.  Nothing is kept from one turn to the next but the compiled selector, as in a host.
"""

from __future__ import annotations

import statistics
from time import process_time_ns
from typing import Any, Final

from benchmarks.peers.base import Address, bodies_of
from benchmarks.readings import Amounts

MESSAGES: Final = 500
TURNS: Final = 40
ROUNDS: Final = 9
SELECTOR: Final = "region = 'EU' AND quantity >= 1 AND price < 500"
SHORT: Final = "region = 'US' AND quantity >= 1 AND price < 500"
HEADERS_ONLY: Final = "JMSPriority >= 4 AND JMSDeliveryMode = 'PERSISTENT' AND JMSTimestamp > 1"


def encoded(size_bytes: int, count: int = MESSAGES, more: int = 0) -> bytes:
    """A block of ``count`` messages with three properties that the selector reads and ``more`` that it does not."""
    from raybroker.content.headers import encode_header
    from raybroker.model.blocks.block import encode_block

    others = {f"other{number}": f"value {number}" for number in range(more)}
    headers = [
        encode_header(
            {"region": "EU", "quantity": 1 + number, "price": number * 1000 / count} | others, None, None, None
        )
        for number in range(count)
    ]
    bodies = bodies_of(size_bytes, count)
    return encode_block(
        bodies, producer=1, first_seq=1, timestamp_ms=1_700_000_000_000, persistent=True, kinds=0, headers=headers
    )


def cost_us(data: bytes, text: str, wanted: float) -> float:
    """Microseconds of processor time a message; the median of some rounds. ``wanted``: share of the messages."""
    from raybroker.content.headers import content_of
    from raybroker.core.selector import compile_selector
    from raybroker.model.blocks.block import Block

    selector = compile_selector(text)
    count = Block(data).count
    everything = (1 << count) - 1
    chosen = selector.pick(content_of(Block(data)), everything, 0).bit_count()
    if chosen != int(wanted * count):
        raise AssertionError(f"{text!r} chose {chosen} of {count} messages")
    taken = []
    for _ in range(ROUNDS):
        began = process_time_ns()
        for _turn in range(TURNS):
            selector.pick(content_of(Block(data)), everything, 0)
        taken.append((process_time_ns() - began) / 1e3 / TURNS / count)
    return statistics.median(taken)


def evaluation(job: Any, address: Address, amounts: Amounts) -> dict[str, tuple[float, str]]:
    """The figure, with some neighbours of it in the note."""
    job.ready()
    data = encoded(amounts.size_bytes)
    value = cost_us(data, SELECTOR, 0.5)
    ten = cost_us(encoded(amounts.size_bytes, more=7), SELECTOR, 0.5)
    first = cost_us(data, SHORT, 0)
    heads = cost_us(data, HEADERS_ONLY, 1)
    note = (
        f"blocks of {MESSAGES}, headers decoded, 3 properties, half wanted; with 10 properties {ten:.2f} µs; "
        f"none wanted by the first comparison {first:.2f} µs; only JMS headers read {heads:.2f} µs"
    )
    return {"selector_eval": (value, note)}


class _NoJob:
    """For a run without a harness."""

    def ready(self) -> None:
        """Nobody waits."""


def main() -> None:
    """Print the figure and its note."""
    for value, note in evaluation(_NoJob(), {}, Amounts()).values():
        print(f"{value:.2f} µs a message: {note}")


if __name__ == "__main__":
    main()
