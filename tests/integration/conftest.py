"""Every test here fails when the router blocks the event loop: a file, a lock, a sleep, a sync socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx


@pytest.fixture(autouse=True)
def _no_blocking_calls() -> Iterator[BlockBuster]:
    with blockbuster_ctx("prefix_router") as watching:
        yield watching
