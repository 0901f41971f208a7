"""Placement of copies: which brokers keep those of another one's logs, each on another node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
