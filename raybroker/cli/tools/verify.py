"""``verify``: arguments to a VerifyPlan of ``raybroker.verify``, its report, and its verdict as an exit code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.grid_words import Attributes, Cluster, Json, attributes
from raybroker.model.errors import ConfigError

CODES: Final = {
    "passed": Exit.DONE,
    "failed": Exit.REFUSED,
    "unfinished": Exit.UNREACHABLE,
    "interrupted": Exit.INTERRUPTED,
}
"""Verdict → exit code."""


def verify(
    faults: Annotated[
        str,
        typer.Option("--faults", metavar="LIST", help="What may be done to the cluster: none, or names with commas."),
    ] = "none",
    duration: Annotated[float, typer.Option("--duration", metavar="S", help="How long is sent.")] = 30.0,
    messages: Annotated[
        int, typer.Option("--messages", metavar="N", help="Most messages, of all producers; 0: as many as come.")
    ] = 0,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Messages a second of all producers; 0: as fast as it goes.")
    ] = 1000.0,
    size: Annotated[int, typer.Option("--size", metavar="BYTES", help="Length of each body.")] = 256,
    producers: Annotated[int, typer.Option("--producers", metavar="N", help="Producers of each destination.")] = 2,
    consumers: Annotated[int, typer.Option("--consumers", metavar="N", help="Consumers of each destination.")] = 2,
    units: Annotated[int, typer.Option("--units", metavar="N", help="Units of order of each producer; 0: none.")] = 8,
    transactions: Annotated[
        bool, typer.Option("--transactions", help="Also move messages from queue to queue in transactions.")
    ] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Between two faults.")] = 5.0,
    pause: Annotated[float, typer.Option("--pause", metavar="S", help="How long a process is stopped.")] = 5.0,
    recovery: Annotated[
        float, typer.Option("--recovery", metavar="S", help="How long the cluster may take to be whole again.")
    ] = 120.0,
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", help="The attribute replicas of the destinations.")
    ] = 1,
    option: Attributes = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Chooses faults and whom they meet.")] = 1,
    json: Json = False,
    cluster: Cluster = "default",
) -> None:
    """Load the cluster, do to it what --faults allows, and check that every promise was kept.

    It makes queues of its own, raybroker_verify_…, and destroys them at the end, also after Ctrl-C. Producers send with
    confirmation, and consumers note each message before they acknowledge it. When all is drained: nothing confirmed is
    lost, nothing comes twice without the flag of a redelivery or after its acknowledgement, each unit of order is in
    order, and of a transaction that was rolled back nothing is delivered.

    \b
    Faults, each of which happens only when it is named:
      none           nothing is done to the cluster
      kill-host      SIGKILL to one host or copy of a broker, which the broker starts again
      kill-broker    SIGKILL to a broker's own process; its hosts go on
      kill-machine   SIGKILL to a broker and all its hosts, as when its machine loses power
      pause-host     SIGSTOP to one host or copy, for --pause seconds
      pause-broker   SIGSTOP to a broker's own process
      pause-machine  SIGSTOP to a broker and all its hosts
      kill-node      SIGKILL to all of Ray on a broker's node, which stays away; a majority is left
      pause-node     SIGSTOP to all of Ray on a broker's node
      kill-client    SIGKILL to a producer, consumer or mover of the run, which is replaced

    Other clients of these brokers feel the faults, too. Exit codes: 0 every promise was kept, 1 one was broken, 3 not
    everything could be looked at, 130 interrupted.
    """
    from raybroker.verify.plan import VerifyPlan, copied, faults_of

    try:
        plan = VerifyPlan(
            cluster=cluster,
            duration_seconds=duration,
            messages=messages,
            rate_per_second=rate,
            size_bytes=size,
            producers=producers,
            consumers=consumers,
            units=units,
            transactions=transactions,
            faults=faults_of(faults),
            interval_seconds=interval,
            pause_seconds=pause,
            recovery_seconds=recovery,
            attributes={**copied(replicas), **attributes(option)},
            seed=seed,
        )
    except ConfigError as error:
        raise UsageError(str(error)) from None
    from raybroker.verify.display import VerifyDisplay

    connecting.require_ray(cluster)
    carry_out = course(cluster)
    with _terminated_as_interrupted():
        report = carry_out(plan, VerifyDisplay())
    if json:
        output.as_json(report.to_json())
    else:
        for line in report.lines():
            output.say(line)
    if code := CODES[str(report.verdict)]:
        raise typer.Exit(code)


def course(cluster: str) -> Any:
    """The function that carries a plan out, in a process that has joined the cluster's Ray."""
    from raybroker.actors import runtime

    runtime.keep_quiet()
    runtime.join_ray(cluster)
    from raybroker.verify.run import run_verify

    return run_verify


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM cleans up as Ctrl-C does; to be begun when Ray is joined, which takes that signal for itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
