"""``up`` and ``down``: a cluster, and the Ray below it when nobody else provides one."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.exits import Exit, UsageError
from raybroker.cli.grid_words import Force
from raybroker.cli.objects import definition_file
from raybroker.cli.objects.definitions import carry_out, show
from raybroker.cli.tools.instances import Reset, reset_after, reset_before
from raybroker.config import Config, instance_of, places
from raybroker.config.brokers import LIST, plan_of
from raybroker.config.layers import flag_layer
from raybroker.model.errors import ConfigError, NoClusterError
from raybroker.model.naming.names import check_cluster_name
from raybroker.model.settings.setting_services import PORT_MAPPER, PORT_MAX
from raybroker.system.clock import SystemClock

TAKEN: Final = "no free port"
SIGNALLED: Final = 128
"""Exit status of a process that a signal ended: this and its number."""
PORT_WAIT_NS: Final = 5_000_000_000
PORT_LOOK_S: Final = 0.5
"""A port may be taken so long, by a broker that ends at the moment, until that is said."""
Define = Annotated[
    list[str] | None,
    typer.Option("-D", metavar="PROP=VALUE", help="Set one property; wins over file and environment. Repeatable."),
]
BrokersPassfile = Annotated[
    Path | None,
    typer.Option(
        "--passfile", metavar="FILE", help="The brokers' passfile; sets imq.passfile.enabled, .dirpath and .name."
    ),
]
DatabaseUser = Annotated[
    str | None, typer.Option("--dbuser", metavar="NAME", help="Sets imq.persist.jdbc.postgresql.user.")
]
Named = Annotated[
    str | None,
    typer.Option(
        "--name",
        "--cluster",
        "-n",
        help="Name of the cluster; without it imq.instancename, else default.",
        metavar="C",
        show_default=False,
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        "-p",
        metavar="PORT",
        min=0,
        max=PORT_MAX,
        help=f"Of the port mapper; sets {PORT_MAPPER}. Brokers of one machine need one each.",
    ),
]
Name = Annotated[str, typer.Option("--name", "--cluster", "-n", help="Name of the cluster.", metavar="C")]


def up(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Cluster file (TOML) with properties.")
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(help="Number of brokers, named b1, b2, …; one where none is said.", metavar="N", min=1)
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(help="Start this broker of the cluster alone, on this node: for one that came back.", metavar="B"),
    ] = None,
    name: Named = None,
    port: Port = None,
    define: Define = None,
    passfile: BrokersPassfile = None,
    dbuser: DatabaseUser = None,
    definitions: Annotated[
        str | None,
        typer.Option(
            "--definitions",
            metavar="FILE",
            help="Then create and change what differs from this file, as import definitions does.",
        ),
    ] = None,
    reset: Reset = None,
    force: Force = False,
) -> None:
    """Start a cluster of brokers, or what of it does not run, and a Ray for it if none can be reached.

    The brokers are those of imq.cluster.brokerlist in the cluster file, or --brokers N: one to a node of the Ray
    cluster as long as there are nodes, and always the node that has a broker's stores.

    Uses the Ray of RAY_ADDRESS, or the one that this machine's last `ray start` or `raybroker up` started. Otherwise it
    starts one, which runs until `raybroker down`. Running it again does no harm: it says where the cluster is.
    Messages are kept over `down` and `up`.

    --reset asks, unless -f is given, and is refused while the cluster runs.

    There is no --shared, because all connections of a host share one event loop in any case.

    Exit code 1 when a broker takes no clients, a service that was asked for does not listen, or not all of
    --definitions was done; the reason is on standard error.
    """
    from raybroker.cli.tools.ray_process import end_abandoned

    wanted = definition_file.read(definitions) if definitions is not None else None
    flags = _usage(flags_of, passfile, dbuser, port, define)
    define = [*(define or ()), *flags]
    chosen, name = _usage(_configuration, name, config, define, brokers, broker, port)
    end_abandoned(places.directory(name))
    reset_before(reset, chosen, name, broker, force)
    place, there, cluster = _started(name, brokers, chosen, broker)
    reset_after(reset, name)
    _say_what_runs(cluster, there, place, given=bool(config or define))
    if wanted is not None:
        _import(name, wanted)


def _started(name: str, brokers: int | None, config: Any, broker: str | None) -> tuple[places.FilePlace, Any, Any]:
    """(the Ray, the cluster that ran already or None, the cluster that runs). A Ray that was started for it ends when
    the cluster does not start, or somebody ends this."""
    from raybroker.cli.tools.ray_process import started_ray

    place = connecting.find_ray(name)
    ours = place is None
    with (
        _ended_by_signals(),
        nullcontext(place) if place is not None else started_ray(_told(name), output.say) as place,
    ):
        places.use(place)
        from raybroker.actors import cluster as clusters
        from raybroker.actors import runtime

        runtime.keep_quiet()
        _join(place, ours=ours)
        there, cluster = clusters.find(name), clusters.start(name, brokers, config, only=broker, told=output.say)
        places.save(name, place)
    return place, there, cluster


def _told(name: str) -> Path:
    output.say("starting Ray …")
    return places.directory(name)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises: what was begun is ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(SIGNALLED + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _usage(work: Callable[..., Any], *arguments: Any) -> Any:
    """What ``work`` returns; a ConfigError is a usage error here."""
    try:
        return work(*arguments)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _configuration(
    name: str | None, file: Path | None, define: list[str], brokers: int | None, broker: str | None, port: int | None
) -> tuple[Config, str]:
    """The configuration and the name of the cluster; raises ConfigError."""
    chosen = Config.load(cluster_file=file, flags=define)
    name = instance_of(chosen, name)
    _check(chosen, brokers, broker, port)
    return chosen, name


def _import(name: str, wanted: dict[str, Any]) -> None:
    with connecting.administering(name) as admin:
        report = carry_out(admin, wanted, users=bool(wanted.get("users")))
    show(report, dry_run=False)
    if not report["complete"]:
        raise typer.Exit(Exit.REFUSED)


def _check(chosen: Config, brokers: int | None, broker: str | None, port: int | None) -> None:
    """Raises ConfigError for options that the configuration contradicts."""
    plan = plan_of(chosen, brokers)
    if port is not None and not chosen["imq.service.activelist"].strip():
        raise ConfigError(f"--port {port}: no service listens; name some with -D imq.service.activelist=jms,admin")
    named = brokers is not None or bool(chosen[LIST])  # Otherwise a cluster that runs may know it.
    if broker is not None and broker not in plan.brokers and named:
        raise ConfigError(f"--broker {broker}: it is none of the brokers {', '.join(plan.names)}")


def _say_what_runs(cluster: Any, there: Any, place: places.FilePlace, *, given: bool) -> None:
    """``there``: the cluster before, if it ran; ``given``: a configuration. Ends with the status of what is wrong."""
    verb = "runs already" if there is not None and there.brokers == cluster.brokers else "runs"
    troubles = cluster.troubles()
    brokers_up = [one for one in cluster.brokers if one not in troubles]
    output.say(f"cluster {cluster.name} {verb}: brokers {', '.join(brokers_up) or 'none'}, Ray at {place.address}")
    silent = _silent_services(cluster)
    for broker, addresses in cluster.consoles().items():
        output.say(f"console of broker {broker}: {', '.join(addresses)}")
    away = cluster.hosts_away()
    for text in (*troubles.values(), *away, *cluster.contradictions(), *silent):
        output.error(text)
    if there is not None and given:
        output.error("the cluster was running: its configuration is the one it was started with")
    _say_how_to_go_on(cluster.name, place)
    if troubles or silent or away:
        raise typer.Exit(Exit.REFUSED)


def _silent_services(cluster: Any) -> list[str]:
    """What is to be said of services that do not listen; a port that is just being left gets a while."""
    clock = SystemClock()
    until_ns = clock.monotonic_ns() + PORT_WAIT_NS
    while (found := cluster.silent_services()) and clock.monotonic_ns() < until_ns:
        if not any(TAKEN in why for why in found.values()):
            break
        clock.sleep(PORT_LOOK_S)
    more = "; the broker runs without, and tries again"
    return [f"broker {broker}: {why}{more if TAKEN in why else ''}" for broker, why in found.items()]


def flags_of(passfile: Path | None, dbuser: str | None, port: int | None, define: list[str] | None) -> list[str]:
    """MQ's options as the properties that they stand for. Raises ConfigError where -D says otherwise."""
    flags = [] if dbuser is None else [f"imq.persist.jdbc.postgresql.user={dbuser}"]
    if port is not None:
        for given in flag_layer(define or ()):
            if given.name == PORT_MAPPER and str(given.value).strip() != str(port):
                raise ConfigError(f"--port {port} and {given.origin}={given.value} contradict each other")
        flags.append(f"{PORT_MAPPER}={port}")
    if passfile is not None:
        path = passfile.expanduser().absolute()
        flags += ["imq.passfile.enabled=true", f"imq.passfile.dirpath={path.parent}", f"imq.passfile.name={path.name}"]
    return flags


def _join(place: places.FilePlace, *, ours: bool) -> None:
    from raybroker.actors import runtime

    try:
        runtime.join_ray()
    except NoClusterError as error:
        if ours:
            from raybroker.cli.tools.ray_process import log_tail

            state = "was too slow to answer" if place.alive() else "has ended"
            raise NoClusterError(
                f"the Ray that was started at {place.address} {state} ({error}); its log ends with:\n{log_tail(place)}"
            ) from None
        raise NoClusterError(
            f"a Ray answers at {place.address} and does not let us in ({error}); set RAY_AUTH_MODE and"
            " RAY_AUTH_TOKEN_PATH as it has them, or RAY_TMPDIR to another folder to start one apart from it"
        ) from None


def _say_how_to_go_on(name: str, place: places.FilePlace) -> None:
    variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in place.variables().items())
    where = "" if name == "default" else f"cluster={name!r}"
    option = "" if name == "default" else f" --cluster {name}"
    output.say(f"commands find it in any shell: raybroker list dst{option}")
    output.say(f"programs find it with rb.connect({where}) after:")
    output.say(f"export {variables}")


def down(
    name: Name = "default",
    broker: Annotated[str | None, typer.Option(help="Stop this broker alone; the others go on.", metavar="B")] = None,
) -> None:
    """Stop a cluster cleanly, or one broker of it; what was acknowledged stays in its stores.

    One broker comes back with `raybroker up --broker B`; `raybroker reload cls` with a list without it removes it for
    good. Ends the Ray as well if `raybroker up` started it and no other cluster runs in it.
    """
    try:
        check_cluster_name(name)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if _abandoned_ended(name):
        return
    noted = places.load(name)
    place = connecting.require_ray(name)
    from raybroker.actors import cluster as clusters
    from raybroker.actors import runtime

    runtime.join_ray()
    cluster = clusters.find(name)
    if broker is not None:
        _stop_one(cluster, name, broker)
        return
    if cluster is not None:
        cluster.stop()
    ours = noted is not None and place.address == noted.address
    if cluster is None and not ours:
        raise NoClusterError(f"no cluster named {name!r} in the Ray at {runtime.address()}")
    if ours:
        places.forget(name)
    output.say(f"cluster {name} is down")
    pid = noted.pid if ours and noted is not None else None
    if pid is None:
        return
    if any(other.pid == pid and other.alive() for other in places.others(name)):
        output.say("Ray runs on: other clusters are in it")
        return
    runtime.leave_ray()
    _end_ray(pid)
    places.forget_last_started(place)
    output.say("Ray is down")


def _abandoned_ended(name: str) -> bool:
    """Whether there was nothing but a Ray that was left by an up that was killed; it has ended."""
    from raybroker.cli.tools.ray_process import end_abandoned

    abandoned = end_abandoned(places.directory(name))
    if abandoned is None or places.load(name) is not None:
        return False
    output.say(f"the Ray at {abandoned.address}, which an up that was killed had started, is down")
    return True


def _stop_one(cluster: Any, name: str, broker: str) -> None:
    if cluster is None:
        raise NoClusterError(f"no cluster named {name!r} runs")
    if broker not in cluster.brokers:
        raise UsageError(f"--broker {broker}: of cluster {name} there run {', '.join(cluster.brokers)}")
    if cluster.brokers == [broker]:
        raise UsageError(f"--broker {broker}: it is the last one; stop the cluster with: raybroker down --name {name}")
    cluster.stop_broker(broker)
    output.say(f"broker {broker} of cluster {name} is down")


def _end_ray(pid: int) -> None:
    from raybroker.cli.tools.ray_process import end_session

    end_session(pid)
