"""The interpreter and the system of this process, without ``platform``, which takes milliseconds to import."""

from __future__ import annotations

import os
import sys
from typing import Final

PYTHON: Final = sys.version.split(maxsplit=1)[0].rstrip("+")
"""The version, such as 3.11.7."""
PLATFORM: Final = f"Python {PYTHON} on {os.uname().sysname}"
"""What hosts are told by their clients, for listings of connections."""
