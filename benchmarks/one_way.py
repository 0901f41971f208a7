"""``python -m benchmarks.one_way``: one-way sends divided by two-way sends, of messages that are not persistent.

One thread sends one message after another with ``send`` to a queue of a broker in a local Ray.  Slices of the two modes
take turns, and after each the queue is purged.  Printed are the median of the ratios of neighbouring slices, the lowest
and the highest, and whether the goal is reached.

    python -m benchmarks.one_way --slices 7 --seconds 1 --window 300
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack
from typing import Any, Final

GOAL: Final = 2.0
"""One-way sends are to be so many times as quick, with a window of 300."""
BODY: Final = b"x" * 1024
QUEUE: Final = "one.way"
LOOKS_AFTER: Final = 20
"""Messages between two looks at the clock."""


def rate(producer: Any, seconds: float) -> float:
    """Messages a second: those that were sent one after another for ``seconds``, until all are settled."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(LOOKS_AFTER):
            producer.send(BODY)
        count += LOOKS_AFTER
    producer.send_async(BODY).result(60)  # Whatever was sent before has been taken once this is.
    return (count + 1) / (time.perf_counter() - began)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_way", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slices", type=int, default=7, help="of each mode")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a slice")
    parser.add_argument("--window", type=int, default=300, help="OneWaySendWindowSize")
    given = parser.parse_args(argv)

    import raybroker as rb

    cluster = rb.start(name="one-way")
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        admin = stack.enter_context(rb.connect(cluster="one-way")).admin()
        admin.create_destination("queue", QUEUE)
        modes = {"two-way": ("disabled", 1), f"one-way, window {given.window}": ("enabled", given.window)}
        producers, rates = {}, {name: list[float]() for name in modes}
        for name, (mode, window) in modes.items():
            factory = rb.ConnectionFactory(OneWaySendMode=mode, OneWaySendWindowSize=window)
            connection = stack.enter_context(factory.connect(cluster="one-way"))
            producers[name] = connection.session().producer(QUEUE, persistent=False)
        for number in range(given.slices + 1):
            for name, producer in producers.items():
                found = rate(producer, given.seconds)
                admin.purge_destination("queue", QUEUE)
                if number:  # The first slices warm up.
                    rates[name].append(found)
    for name, row in rates.items():
        shown = f"[{min(row):,.0f} … {max(row):,.0f}]"
        print(f"{name:24} {statistics.median(row):>10,.0f} messages a second {shown}")
    two, one = rates.values()
    ratios = [b / a for a, b in zip(two, one, strict=True)]
    reached = statistics.median(ratios) >= GOAL
    print(
        f"ratio {statistics.median(ratios):.2f} [{min(ratios):.2f} … {max(ratios):.2f}], goal {GOAL:g}:"
        f" {'reached' if reached else 'missed'}"
    )
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
