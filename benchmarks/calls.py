"""``python -m benchmarks.calls``: how many calls one confirmed send makes, in its host and in its client; with
``--receive`` one ``receive()`` with AUTO, which acknowledges the message before and waits until that is confirmed.

Processor time follows the load of the machine; the number of calls, of functions of ours and of the language, does not.
The host runs as it does in its actor, in a process of its own without Ray, over a journal.  A busy machine would send
some of the messages another way, with more changes of thread, so here no time is too long: commits stay in the engine's
thread, and the client's thread serves its socket until it has its answer.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing as mp
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import raybroker
from benchmarks.cpu_budget import connect_to, serving
from raybroker.client.io import io_thread, turns
from raybroker.engine.path import committer
from raybroker.system.memory import keep_freed_memory
from raybroker.transport.loops import new_event_loop

PACKAGE = str(Path(raybroker.__file__).parent) + "/"
WARM_UP = 300
NEVER_NS = 3_600_000_000_000
PATIENCE_S = 60.0
OURS, LANGUAGE = "ours", "the language's"


@contextmanager
def counting() -> Iterator[Counter[tuple[str, str]]]:
    """(whose, function) → calls that this thread makes meanwhile, of functions that Python sees."""
    found: Counter[tuple[str, str]] = Counter()

    def seen(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            path = code.co_filename
            name = f"{path.removeprefix(PACKAGE)}:{code.co_qualname}"
            found[OURS if path.startswith(PACKAGE) else LANGUAGE, name] += 1
        elif event == "c_call":
            found[LANGUAGE, getattr(arg, "__qualname__", repr(arg))] += 1

    sys.setprofile(seen)
    try:
        yield found
    finally:
        sys.setprofile(None)


def host(pipe: Any, folder: str) -> None:
    """A destination host; from a word on the pipe to the next one the calls of its thread are counted."""
    keep_freed_memory()
    committer.INLINE_NS_MAX = committer.INLINE_QUICK_NS = NEVER_NS  # type: ignore[misc]

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        async with serving(folder) as port:
            pipe.send(port)
            await loop.run_in_executor(None, pipe.recv)
            with counting() as found:
                pipe.send("counting")
                await loop.run_in_executor(None, pipe.recv)
            pipe.send(found)
            await loop.run_in_executor(None, pipe.recv)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())


def measure(
    sends: int, size: int, *, receive: bool = False
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """The calls of so many sends or receives, one after the other: those of the client's thread, and of the host's."""
    io_thread.LEAD_NS = io_thread.NOBODY_NS = turns.LOOP_NS = NEVER_NS  # type: ignore[misc]
    folder = tempfile.mkdtemp(prefix="rbb-")
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=host, args=(theirs, folder), daemon=True)
    process.start()
    try:
        with connect_to(ours.recv()) as connection:
            producer = connection.session().producer("q")
            body = bytes(size)
            turn: Callable[[], Any] = partial(producer.send, body)
            if receive:
                producer.send_many([body] * (sends + WARM_UP))
                turn = partial(connection.session(ack="auto").consumer("q").receive, PATIENCE_S)
            for _ in range(WARM_UP):
                assert turn() is not None
            ours.send("count")
            assert ours.recv() == "counting"
            with counting() as client:
                for _ in range(sends):
                    assert turn() is not None
            ours.send("done")
            found: Counter[tuple[str, str]] = ours.recv()
        ours.send("end")
        return client, found
    finally:
        process.join(10.0)
        if process.is_alive():
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def of(found: Counter[tuple[str, str]], whose: str, sends: int) -> float:
    """Calls of each."""
    return sum(count for (owner, _), count in found.items() if owner == whose) / sends


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--sends", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--list", action="store_true", help="every function that at least half of them call")
    parser.add_argument("--receive", action="store_true", help="receives with AUTO in place of sends")
    options = parser.parse_args()
    for title, found in zip(
        ("client", "host"), measure(options.sends, options.size, receive=options.receive), strict=True
    ):
        ours, language = (of(found, whose, options.sends) for whose in (OURS, LANGUAGE))
        each = "receive" if options.receive else "send"
        print(f"{title:7s} {ours + language:6.1f} calls a {each}: {ours:.1f} of ours, {language:.1f} of the language")
        if options.list:
            for (whose, name), count in found.most_common():
                if count >= options.sends / 2:
                    print(f"  {count / options.sends:6.2f}  {name}" + (" *" if whose == OURS else ""))


if __name__ == "__main__":
    main()
