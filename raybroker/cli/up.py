"""``up`` and ``down``: a cluster, and the Ray below it when nobody else provides one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from raybroker.cli import connecting, output, places
from raybroker.cli.exits import UsageError
from raybroker.config import Config
from raybroker.model.errors import ConfigError, NoClusterError
from raybroker.model.names import check_cluster_name

Name = Annotated[str, typer.Option("--name", "--cluster", "-n", help="Name of the cluster.", metavar="C")]


def up(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Cluster file (TOML) with properties.")
    ] = None,
    brokers: Annotated[int, typer.Option(help="Number of brokers.", metavar="N", min=1)] = 1,
    name: Name = "default",
    define: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="PROP=VALUE", help="Set one property; wins over file and environment. Repeatable."),
    ] = None,
) -> None:
    """Start a cluster of brokers, and a Ray for it if none can be reached.

    Uses the Ray of RAY_ADDRESS, or the one that this machine's last `ray start` or `raybroker up` started. Otherwise it
    starts one, which runs until `raybroker down`. Running it again does no harm: it says where
    the cluster is. Messages are kept over `down` and `up`.
    """
    try:
        check_cluster_name(name)
        chosen = Config.load(cluster_file=config, flags=define or [])
    except ConfigError as error:
        raise UsageError(str(error)) from None
    place = _find_ray(name)
    ours = place is None
    if place is None:
        from raybroker.cli.ray_process import start_ray

        output.say("starting Ray …")
        place = start_ray(places.directory(name))
        places.use(place)
    from raybroker.actors import cluster as clusters
    from raybroker.actors import runtime

    runtime.keep_quiet()
    try:
        runtime.join_ray()
        there = clusters.find(name)
        cluster = clusters.start(name, brokers, chosen)
    except BaseException:
        if ours and place.pid is not None:
            _end_ray(place.pid)
        raise
    places.save(name, place)
    verb = "runs already" if there is not None else "runs"
    output.say(f"cluster {name} {verb}: brokers {', '.join(cluster.brokers)}, Ray at {place.address}")
    if there is not None and (config or define):
        output.error("the cluster was running: its configuration is the one it was started with")
    _say_how_to_go_on(name, place)


def _find_ray(name: str) -> places.Place | None:
    """A Ray to start in: the cluster's own, or any that runs."""
    found = connecting.find_ray(name)
    if found is None:
        for place in places.others(name):
            if place.alive():
                places.use(place)
                return place
    return found


def _say_how_to_go_on(name: str, place: places.Place) -> None:
    variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in place.variables().items())
    where = "" if name == "default" else f"cluster={name!r}"
    option = "" if name == "default" else f" --cluster {name}"
    output.say(f"  raybroker list dst{option}          finds it in any shell of yours")
    output.say(f"  rb.connect({where}) finds it after:")
    output.say(f"export {variables}")


def down(name: Name = "default") -> None:
    """Stop a cluster cleanly; what was acknowledged stays in its stores.

    Ends the Ray as well if `raybroker up` started it and no other cluster runs in it.
    """
    try:
        check_cluster_name(name)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    noted = places.load(name)
    place = connecting.find_ray(name)
    if place is None and noted is not None:
        places.forget(name)
        raise NoClusterError(f"cluster {name!r} was started at {noted.address} and is gone already")
    from raybroker.actors import cluster as clusters
    from raybroker.actors import runtime

    runtime.join_ray()
    cluster = clusters.find(name)
    if cluster is not None:
        cluster.stop()
    ours = noted is not None and place is not None and place.address == noted.address
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
    output.say("Ray is down")


def _end_ray(pid: int) -> None:
    from raybroker.cli.ray_process import end_session

    end_session(pid)
