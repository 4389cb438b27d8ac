"""`python -m prefix_router` is the command `prefix-router`."""

from __future__ import annotations

import sys

from prefix_router.cli import main

sys.exit(main())
