"""Who logs in at vLLM: a client that sends X-Api-Key is let in only when the router brings the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.client_fleet import client_fleet

if TYPE_CHECKING:
    from tests.support.client_fleet import ClientFleet

pytestmark = pytest.mark.clients


def test_vllm_does_not_look_at_the_header_of_older_anthropic_libraries(fleet: ClientFleet) -> None:
    assert fleet.run("anthropic_key") == "AuthenticationError"


@pytest.mark.usefixtures("fleet")  # It says whether the clients are installed.
def test_a_router_that_has_the_key_lets_it_in() -> None:
    with client_fleet(router_has_key=True) as fleet:
        assert fleet.run("anthropic_key") == "answered"
