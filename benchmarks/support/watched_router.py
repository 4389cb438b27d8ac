"""The router's own command line, plus one signal: SIGUSR1 writes the number of asyncio tasks to a file.

    ROUTER_TASKS_FILE=tasks python -m benchmarks.support.watched_router serve --config router.yaml

Nothing else differs from `python -m prefix_router`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from prefix_router.cli import main


def _write_tasks(*_: object) -> None:
    try:
        count = len(asyncio.all_tasks())
    except RuntimeError:  # no loop yet, or no more
        count = 0
    target = Path(os.environ["ROUTER_TASKS_FILE"])
    temporary = target.with_suffix(".new")
    temporary.write_text(str(count))
    temporary.replace(target)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _write_tasks)
    sys.exit(main())
