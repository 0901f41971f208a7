"""One command on its way to a destination."""

from __future__ import annotations

from typing import NamedTuple

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.model.block import Block


class Step(NamedTuple):
    """One command for one destination, with the block that a Send brings."""

    home: Destination
    command: cmd.Command
    block: Block | None = None
