"""Batch inference: the broker forms the batches of a model, by shape and by tokens, and one bad prompt spoils none.

Prompts of some lengths wait in one queue.  A model pads a batch to its longest prompt, so that prompts of one shape
should go together, and its memory bounds their tokens.  Each batch comes when it is full, or when its oldest prompt has
waited for 50 ms.  A prompt on which the model fails comes again alone, and is dead after the second time.

    python -m raybroker.examples.batch_inference --prompts 200 --bad 3
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import raybroker as rb

SHAPES = (128, 512, 2048)
"""Lengths to which prompts are padded, tokens."""
TOKENS_MAX = 8192
"""Tokens of one batch that fit into the memory of the model."""
BATCH = rb.Batch(max_messages=32, max_cost=TOKENS_MAX, cost="tokens", key="shape", deadline_s=0.05)
PATIENCE_S = 60.0
"""How long the whole may take."""


def ask(connection: Any, prompts: int, bad: int) -> None:
    """Put prompts into the queue; the first ones are such that the model fails on them."""
    producer = connection.session().producer("prompts")
    for number in range(prompts):
        shape = SHAPES[number % len(SHAPES)]
        tokens = shape - number % 100
        producer.send({"number": number, "bad": number < bad}, {"shape": shape, "tokens": tokens}, persistent=False)


def run(connection: Any, prompts: int, bad: int) -> dict[str, Any]:
    """Returns what was found."""
    admin = connection.admin()
    admin.create_destination("queue", "prompts", if_exists="keep", redeliveryLimit=1)
    consumer = connection.session(ack="client").consumer("prompts", batch=BATCH, ack_timeout_ms=30_000)
    ask(connection, prompts, bad)
    answered: set[int] = set()
    batches = mixed = over = 0
    until = time.monotonic() + PATIENCE_S
    while len(answered) < prompts - bad or admin.query_destination("queue", "prompts")["messages"]:
        if time.monotonic() > until:
            break
        batch = consumer.receive_batch(timeout=0.1)
        if not batch:
            continue
        batches += 1
        mixed += len({message.properties["shape"] for message in batch}) > 1
        over += sum(message.properties["tokens"] for message in batch) > TOKENS_MAX
        for message in batch:  # Stands for one call of the model with all of them.
            if message.body["bad"]:
                message.fail(0, "the model does not understand it")
            else:
                answered.add(message.body["number"])
        batch[-1].acknowledge()  # All that has not failed.
    row = admin.query_destination("queue", "prompts")
    return {
        "answered": len(answered),
        "dead": row["dead"],
        "batches": batches,
        "fill": round(prompts / max(batches, 1), 1),
        "mixed": mixed,
        "over": over,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m raybroker.examples.batch_inference", description=__doc__)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--bad", type=int, default=3)
    args = parser.parse_args()
    rb.start()
    with rb.connect() as connection:
        found = run(connection, args.prompts, args.bad)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return 0 if found["answered"] == args.prompts - args.bad and found["dead"] == args.bad else 1


if __name__ == "__main__":
    sys.exit(main())
