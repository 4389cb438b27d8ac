from __future__ import annotations

import asyncio

import pytest

from prefix_router.proxy.lease import Lease
from prefix_router.routing.fleet import InFlight


def test_a_lease_counts_from_its_making_to_the_end_of_its_block() -> None:
    in_flight = InFlight()
    with Lease(in_flight):
        assert in_flight.count == 1
        with Lease(in_flight):
            assert in_flight.count == 2
    assert in_flight.count == 0


def test_a_lease_is_given_back_once_however_often_it_is_released() -> None:
    in_flight = InFlight()
    with Lease(in_flight) as lease:
        lease.release()
        lease.release()
        assert in_flight.count == 0
    assert in_flight.count == 0


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit])
def test_a_lease_is_given_back_whatever_is_raised(error: type[BaseException]) -> None:
    in_flight = InFlight()
    with pytest.raises(error), Lease(in_flight):
        raise error
    assert in_flight.count == 0
