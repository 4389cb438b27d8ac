"""One fleet for all clients, and the marker that keeps them out of `make test`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.client_fleet import CLIENT_PYTHON, ClientFleet, client_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def fleet() -> Iterator[ClientFleet]:
    if not CLIENT_PYTHON.exists():
        pytest.skip(
            "the clients are not installed: scripts/setup_clients.sh .venv-clients, or `make test-clients`"
        )
    with client_fleet() as running:
        yield running
