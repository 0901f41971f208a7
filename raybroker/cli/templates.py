"""Templates on the command line: create, list, update and destroy tpl."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import connecting, output
from raybroker.cli.answers import show_list, things
from raybroker.cli.exits import UsageError
from raybroker.cli.groups import groups
from raybroker.cli.objects import Attributes, Cluster, Force, Json, ask, attributes
from raybroker.model.listing import Row

COLUMNS: Final = {"name": "name", "attributes": "attributes"}
TemplateName = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the template.")]


@groups["create"].command("tpl")
def create_tpl(name: TemplateName, option: Attributes = None, cluster: Cluster = "default") -> None:
    """Create a template: raybroker create tpl -n small -o maxNumMsgs=100; then create dst … -o template=small"""
    given = attributes(option)
    with connecting.administering(cluster) as admin:
        admin.create_template(name, **given)
    output.say(f"created template {name}")


@groups["list"].command("tpl")
def list_tpl(cluster: Cluster = "default", json: Json = False) -> None:
    """List templates with their attributes."""
    with connecting.administering(cluster) as admin:
        rows = admin.list_templates()
    show_list(rows, COLUMNS, empty="no templates", json=json, shown=_shown)


def _shown(row: Row) -> Row:
    attributes = " ".join(f"{key}={output.plain(value)}" for key, value in row["attributes"].items())
    return {**row, "attributes": attributes}


@groups["update"].command("tpl")
def update_tpl(name: TemplateName, option: Attributes = None, cluster: Cluster = "default") -> None:
    """Change a template and the destinations that have not set those attributes themselves."""
    changes = attributes(option)
    if not changes:
        raise UsageError("update tpl: nothing to change; give -o attribute=value")
    with connecting.administering(cluster) as admin:
        count = admin.update_template(name, **changes)
    output.say(f"updated template {name} and {things(count, 'destination')}")


@groups["destroy"].command("tpl")
def destroy_tpl(name: TemplateName, force: Force = False, cluster: Cluster = "default") -> None:
    """Remove a template; destinations keep what they took from it."""
    ask(force, f"remove template {name}?")
    with connecting.administering(cluster) as admin:
        admin.destroy_template(name)
    output.say(f"destroyed template {name}")
