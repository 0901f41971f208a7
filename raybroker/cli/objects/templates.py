"""Templates on the command line: create, list, update and destroy tpl."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from raybroker.cli import output
from raybroker.cli.answers import show_list, things
from raybroker.cli.command import command
from raybroker.cli.exits import UsageError
from raybroker.cli.grid_words import Attributes, Force, Json, ask, attributes
from raybroker.client.admin.admin import Admin
from raybroker.model.listing import Row

COLUMNS: Final = {"name": "name", "attributes": "attributes"}
TemplateName = Annotated[str, typer.Option("-n", "--name", metavar="NAME", help="Name of the template.")]


@command("create", "tpl")
def create_tpl(admin: Admin, name: TemplateName, option: Attributes = None) -> None:
    """Create a template: raybroker create tpl -n small -o maxNumMsgs=100; then create dst … -o template=small"""
    given = attributes(option)
    admin.create_template(name, **given)
    output.say(f"created template {name}")


@command("list", "tpl")
def list_tpl(admin: Admin, json: Json = False) -> None:
    """List templates with their attributes."""
    rows = admin.list_templates()
    show_list(rows, COLUMNS, empty="no templates", json=json, shown=_shown)


def _shown(row: Row) -> Row:
    attributes = " ".join(f"{key}={output.plain(value)}" for key, value in row["attributes"].items())
    return {**row, "attributes": attributes}


@command("update", "tpl")
def update_tpl(admin: Admin, name: TemplateName, option: Attributes = None) -> None:
    """Change a template and the destinations that have not set those attributes themselves."""
    changes = attributes(option)
    if not changes:
        raise UsageError("update tpl: nothing to change; give -o attribute=value")
    count = admin.update_template(name, **changes)
    output.say(f"updated template {name} and {things(count, 'destination')}")


@command("destroy", "tpl")
def destroy_tpl(admin: Admin, name: TemplateName, force: Force = False) -> None:
    """Remove a template; destinations keep what they took from it."""
    ask(force, f"remove template {name}?")
    admin.destroy_template(name)
    output.say(f"destroyed template {name}")
