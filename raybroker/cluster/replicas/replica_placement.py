"""Placement of copies: which brokers keep those of another one's logs, each on another node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from raybroker.model.errors import ConfigError


def peers_of(
    owner: str,
    replicas: int,
    nodes: Mapping[str, str],
    wanted: Sequence[str] = (),
    *,
    one_node: bool = False,
) -> tuple[str, ...]:
    """Return the brokers that keep the other copies of ``owner``, in the order in which they are asked.

    nodes     broker → node, of all whose node is known
    wanted    the brokers that an administrator names; none: the next ones by name, after the last the first
    one_node  several copies may be on one node, where all are lost together: for tests

    Raises ConfigError where there are not enough, or two copies would be on one node.
    """
    for name in wanted:
        if name == owner:
            raise ConfigError(f"broker {owner} has one copy of its own logs itself: name other brokers for the others")
        if name not in nodes:
            known = ", ".join(sorted(nodes)) or "none"
            raise ConfigError(f"broker {name!r}, which is to keep a copy, is not known to run anywhere; known: {known}")
    after = sorted(nodes.keys() - {owner}, key=lambda name: (name < owner, name))
    taken: dict[str, str] = {owner: nodes.get(owner, "")}
    for name in dict.fromkeys(wanted or after):
        if len(taken) == replicas:
            break
        beside = next((other for other, node in taken.items() if node == nodes[name]), None)
        if beside is None or one_node:
            taken[name] = nodes[name]
        elif wanted:
            raise ConfigError(
                f"brokers {beside} and {name} are both on node {nodes[name]}: whoever loses it would lose two copies;"
                " name brokers on different nodes"
            )
    if len(taken) < replicas:
        among = f"of {', '.join(wanted)}" if wanted else "there are"
        raise ConfigError(
            f"{replicas} copies of what broker {owner} stores need {replicas} nodes with a broker each, and {among}"
            f" {len(taken)} that can be used ({', '.join(taken)}): start brokers on other nodes, or take fewer copies"
        )
    return tuple(name for name in taken if name != owner)


def joined(keeping: Sequence[str], count: int, nodes: Mapping[str, str], wanted: str = "") -> tuple[str, ...]:
    """Return the brokers that are to keep copies beside those that do, ``count`` in all, each on another node.

    keeping  the brokers whose copies stay, which all have to be among ``nodes``
    nodes    broker → node, of all whose node is known
    wanted   the one that an administrator names; "": the next ones by name

    Raises ConfigError where there are not enough, and for a broker that cannot be the one.
    """
    if silent := [name for name in keeping if name not in nodes]:
        raise ConfigError(
            f"brokers {', '.join(silent)}, which keep copies, cannot be asked on which nodes they are: start them, or"
            " replace those copies one at a time (raybroker replace replica)"
        )
    if wanted:
        if wanted in keeping:
            raise ConfigError(f"broker {wanted} keeps a copy already: name another one")
        if wanted not in nodes:
            known = ", ".join(sorted(nodes)) or "none"
            raise ConfigError(f"broker {wanted!r}, which is to keep a copy, is not up; those that are: {known}")
        if beside := next((name for name in keeping if nodes[name] == nodes[wanted]), None):
            raise ConfigError(
                f"brokers {beside} and {wanted} are both on node {nodes[wanted]}: whoever loses it would lose two"
                " copies; name a broker on another node"
            )
    taken = {name: nodes[name] for name in keeping}
    for name in [wanted] if wanted else sorted(nodes.keys() - set(keeping)):
        if len(taken) < count and nodes[name] not in taken.values():
            taken[name] = nodes[name]
    if len(taken) < count:
        raise ConfigError(
            f"{count} copies need {count} nodes with a broker each, and there are {len(taken)} that can be used"
            f" ({', '.join(taken)}): start brokers on other nodes, or take fewer copies"
        )
    return tuple(name for name in taken if name not in keeping)


def surplus(brokers: Sequence[str], count: int, leader: str, up: Collection[str]) -> tuple[str, ...]:
    """Return the brokers whose copies are to go so that ``count`` are left: never the leader's; first those that are
    not up, then the last."""
    rest = [name for name in brokers if name != leader]
    rest.sort(key=lambda name: name not in up)
    return tuple(rest[count - 1 :]) if count < len(brokers) else ()
