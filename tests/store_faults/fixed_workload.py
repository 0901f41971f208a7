"""A short workload for tracing: prints each acknowledged operation; exits with 7 when the store has failed.

python -m tests.store_faults.fixed_workload DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

from raybroker.model.errors import StoreError
from tests.store_faults.script import Host, open_journal

SEED = 5


def main() -> int:
    try:
        journal = open_journal(Path(sys.argv[1]))
        host = Host(journal, SEED)
        for _ in range(40):
            print(host.step(), flush=True)
            host.settle()
        journal.close()
    except StoreError:
        return 7
    return 0


if __name__ == "__main__":
    sys.exit(main())
