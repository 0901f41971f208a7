"""Load on a queue with copies at brokers whose Ray loses its global control store:

    python -m tests.cluster.copied_without_gcs FOLDER

Producers and consumers go on, also when the process of the leader ends then: clients of each broker find the next one.
A Ray whose store had no memory ends by itself a minute later, and this process with it; so it ends all before that, as
a machine that loses its power, and leaves the stores and the notes in FOLDER.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.cluster import rays
from tests.cluster.copied import running_copied

GOES_ON_S = 30.0
LOSES_S = 5.0
"""Then the process of the leader ends."""
LONGEST_S = 10.0
"""Without a confirmation."""


def main(arguments: list[str]) -> int:
    made = rays.folder()
    with running_copied(Path(arguments[0])) as run:
        for name in run.names:
            run.load.spawn("producer", name)
        run.load.wait_busy()
        leader = run.copy_process(run.leader())  # Later nobody can be asked.
        run.nodes.kill_gcs()
        since = time.monotonic()
        longest = 0.0
        while time.monotonic() < since + GOES_ON_S:
            longest = max(longest, run.goes_on(LONGEST_S))
            run.load.wait_busy()
            time.sleep(0.2)
            if leader and time.monotonic() > since + LOSES_S:
                os.kill(leader, signal.SIGKILL)
                leader = 0
        print(f"{GOES_ON_S:g} s without the GCS, at most {longest:.1f} s without a confirmation", flush=True)
        run.load.abandon()
        rays.end_all(made)
        shutil.rmtree(made)
        os._exit(0)  # Ray's own end would wait for the store.


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
