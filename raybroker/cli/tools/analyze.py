"""``analyze``: a lake of scrapes to a report, or to alerts as it grows; ``collect``: fills such a lake."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.grid_words import Cluster, duration_ms
from raybroker.model.errors import ConfigError
from raybroker.system.clock import SystemClock

TIER: Final = "?tier=all"
"""Jobs ask about destinations: exports have all tiers."""
FOLLOW_BACK_MS: Final = 300_000
"""A stream that does not go on at a checkpoint begins so long ago: rates need a scrape before the first one."""
TOP: Final = 10

Lake = Annotated[Path, typer.Argument(metavar="LAKE", help="Folder of scrapes, as raybroker collect writes it.")]


def analyze(
    lake: Lake,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The report; its JSON comes beside it.")] = Path(
        "report.html"
    ),
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From: 2026-11-21T12:00 (UTC), or 3d (ago).")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to, likewise.")] = None,
    master: Annotated[
        str,
        typer.Option(
            "--master",
            metavar="URL",
            help="A Spark master. Its workers need pandas and pyarrow, and "
            "share the lake and --tables (with --follow: --checkpoint) with this machine.",
        ),
    ] = "local[*]",
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Of Spark's driver.")] = "2g",
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="K=V", help="A setting of Spark. Repeatable.")
    ] = None,
    step: Annotated[str | None, typer.Option("--step", metavar="TIME", help="Length of a step, such as 1m.")] = None,
    tables: Annotated[
        Path | None, typer.Option("--tables", metavar="DIR", help="Keep the tables there, as Parquet.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Raise alerts as the lake grows; end with Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Of batches; --follow.", min=0.1)] = 5.0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="With --follow: go on there, with the alerts that were up; --since counts the first time only.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="With --follow: alerts as lines of JSON.")] = False,
    class_archive: Annotated[
        bool,
        typer.Option(
            "--class-archive/--no-class-archive",
            help="Keep Spark's classes in ~/.cache/raybroker, so that the next start is shorter.",
        ),
    ] = True,
) -> None:
    """Analyse the metrics of a cluster with Spark: raybroker analyze LAKE --out report.html

    The report is one HTML file with plots, and the findings as JSON beside it. Spark runs in this process unless
    --master names another; it needs a Java of 17 or newer, or the one that pip install 'raybroker[analysis]' brings.
    """
    now = SystemClock().now_ms()
    since_ms = None if since is None else time_ms("--since", since, now)
    if follow:
        start = since_ms if since_ms is not None else now - FOLLOW_BACK_MS
        _follow(lake, master, start, interval, checkpoint, json=json, archive=class_archive)
        return
    from raybroker.analysis.run import FOREVER_MS, Analysis
    from raybroker.analysis.run import analyze as run

    plan = Analysis(
        lake,
        out,
        now,
        master,
        since_ms or 0,
        FOREVER_MS if until is None else time_ms("--until", until, now),
        tables,
        None if step is None else _step_ms(step),
        memory,
        _settings(conf or []),
        class_archive,
    )
    if plan.since_ms >= plan.until_ms:
        raise UsageError("--since is not before --until")
    with _progress() as progress:
        result = run(plan, lambda: SystemClock().monotonic_ns() / 1e9, progress)
    shown = result.findings
    for found in shown[:TOP]:
        output.say(f"{found.severity:8}  {found.subject}: {found.text}")
    if len(shown) > TOP:
        output.say(f"{len(shown) - TOP} more findings are in the report")
    output.say(f"{result.facts.samples:,.0f} samples, {len(shown)} findings: {result.files[0]}")


def collect(
    lake: Lake,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Between scrapes.", min=0.1)] = 15.0,
    duration: Annotated[
        float | None, typer.Option("--duration", metavar="S", help="End after this; else with Ctrl-C.")
    ] = None,
    url: Annotated[
        list[str] | None, typer.Option("--url", metavar="BROKER=URL", help="This one, not the cluster's. Repeatable.")
    ] = None,
    rotate: Annotated[str, typer.Option("--rotate", metavar="TIME", help="Scrapes of so long make a file.")] = "1m",
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", metavar="URL", help="Copy from a Prometheus server instead, once.")
    ] = None,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="With --prometheus: from.")] = "1d",
    step: Annotated[str, typer.Option("--step", metavar="TIME", help="With --prometheus: the step.")] = "15s",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="With the token that endpoints, or the Prometheus server, ask for; read each time.",
        ),
    ] = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust",
            metavar="FILE",
            help="Of https: certificates, or their authorities, that are accepted, as PEM (raybroker keytool export).",
        ),
    ] = None,
    server_name: Annotated[
        str,
        typer.Option(
            "--server-name",
            metavar="NAME",
            help="Of https: the name in the certificates, where it is not that of the address.",
        ),
    ] = "",
    compact: Annotated[bool, typer.Option("--compact", help="Put the files of past days together, and end.")] = False,
    cluster: Cluster = "default",
) -> None:
    """Write what brokers tell Prometheus into a lake, for raybroker analyze: raybroker collect LAKE"""
    from raybroker.analysis.lake import export
    from raybroker.analysis.lake.lake import date_of

    clock = SystemClock()
    now = clock.now_ms()
    if compact:
        output.say(f"{lake}: {export.compact(lake, before=date_of(now))} files fewer")
        return
    if prometheus is not None:
        written = _asked_prometheus(
            lake,
            prometheus,
            time_ms("--since", since, now),
            now,
            duration_ms("--step", step),
            asking_of(token_file, trust, server_name),
        )
        output.say(f"{lake}: {written} scrapes from {prometheus}")
        return
    given = _endpoints(url or [])
    targets: Callable[[], dict[str, str]] = (lambda: given) if given else (lambda: _cluster_endpoints(cluster))
    asking = asking_of(token_file, trust, server_name)
    collector = export.Collector(lake, targets, clock.now_ms, rotate_ms=duration_ms("--rotate", rotate), asking=asking)
    output.say(f"collecting from {', '.join(sorted(targets()))} every {interval:g} s; end with Ctrl-C")
    stop = threading.Event()
    timer = threading.Timer(duration, stop.set) if duration is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        collector.run(interval, stop, _tell_errors)
    except KeyboardInterrupt:
        collector.flush()


def time_ms(option: str, text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of a date and time (UTC unless it says more) or of a span ago; raises UsageError."""
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        return now_ms - duration_ms(option, text.removesuffix("ago").strip())
    return round((when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _step_ms(text: str) -> int:
    step = duration_ms("--step", text)
    if step < 1000 or 86_400_000 % step:
        raise UsageError(f"--step {text}: a step is a second or more and divides a day")
    return step


def _settings(given: list[str]) -> Mapping[str, str]:
    for one in given:
        if "=" not in one:
            raise UsageError(f"--conf {one}: write NAME=VALUE")
    return dict(one.split("=", 1) for one in given)


def _endpoints(given: list[str]) -> dict[str, str]:
    for one in given:
        if "=" not in one or "://" not in one.partition("=")[2]:
            raise UsageError(f"--url {one}: write BROKER=URL, such as b1=http://host:9464/metrics")
    return dict(one.split("=", 1) for one in given)


def _cluster_endpoints(cluster: str) -> dict[str, str]:
    rows = connecting.brokers(cluster)
    return {row["broker"]: f"{row['metrics_url']}{TIER}" for row in rows if row.get("metrics_url")}


def asking_of(token_file: Path | None, trust: Path | None, server_name: str) -> Any:
    """How endpoints are asked; raises UsageError for files that cannot be used."""
    from raybroker.analysis.asking import Asking
    from raybroker.security.tls import client_context

    def token() -> str:
        return "" if token_file is None else token_file.read_text(encoding="utf-8").strip()

    try:
        token()
        return Asking(token, client_context(trust=trust) if trust is not None else None, server_name)
    except (OSError, ConfigError) as error:
        raise UsageError(str(error)) from None


def _asked_prometheus(lake: Path, url: str, start_ms: int, end_ms: int, step_ms: int, asking: Any) -> int:
    from raybroker.analysis.lake import export

    try:
        return export.from_prometheus(lake, url, start_ms, end_ms, step_ms, asking=asking)
    except (OSError, ValueError, KeyError) as error:
        output.error(f"{url} does not answer as a Prometheus server: {error}")
        raise typer.Exit(Exit.UNREACHABLE) from None


def _tell_errors(scrapes: list[Any]) -> None:
    for one in scrapes:
        if one.error is not None:
            output.error(f"{one.broker}: {one.error}")


def _follow(
    lake: Path, master: str, since_ms: int, interval_s: float, checkpoint: Path | None, *, json: bool, archive: bool
) -> None:
    from raybroker.analysis.follow import LakeFollower, claim, follow
    from raybroker.analysis.spark import masters, session

    if not lake.is_dir():
        raise UsageError(f"{lake} is no lake: there is no such folder")
    here = masters.is_here(master)
    if checkpoint is not None:
        claim(checkpoint, lake)
    elif not here:
        raise UsageError(
            f"workers of {master} keep the state of alerts: name a folder that all of them, and this "
            "machine, share with --checkpoint DIR"
        )
    stop = threading.Event()
    with session.spark(master, archive=archive) as spark, _ended_by_signals(stop):
        if checkpoint is not None and not here:
            masters.check_workers(spark, lake.absolute(), checkpoint.absolute(), "--checkpoint")
        follower = LakeFollower(
            spark,
            lake,
            lambda batch: _show(batch, json=json),
            since_ms=since_ms,
            interval_s=interval_s,
            checkpoint=checkpoint,
        )
        output.say(f"following {lake}; end with Ctrl-C") if not json else None
        follow(follower, stop)


@contextmanager
def _ended_by_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set ``stop``: an exception in the middle of a call of Spark would leave it half done."""
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(batch: Any, *, json: bool) -> None:
    import orjson

    from raybroker.analysis.lake.plan import moment

    for alert in batch.changed:
        if json:
            output.say(orjson.dumps(alert._asdict()).decode())
        else:
            word = alert.severity if alert.state == "raised" else alert.state
            output.say(f"{moment(alert.at_ms)}  {word:8}  {alert.name}: {alert.subject}: {alert.text}")
    for fault in batch.faults:
        times = f" ({fault.times} times)" if fault.times > 1 else ""
        output.error(f"input: {fault.what}: {fault.where}{times}")


@contextmanager
def _progress() -> Any:
    """A bar at a terminal, lines on standard error elsewhere."""
    if not output.is_terminal():
        yield lambda what, done, of: output.error(f"{done}/{of} {what}") if done < of else None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), transient=True
    ) as bar:
        task = bar.add_task("analyze", total=None)
        yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of)
