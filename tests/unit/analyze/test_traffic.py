from __future__ import annotations

import pytest

from prefix_router.analyze import traffic as traffic_module
from prefix_router.analyze.record import RecordedRequest
from prefix_router.analyze.traffic import Traffic
from prefix_router.fleetsim.request import check
from prefix_router.routing.chain import PromptEnd


def recorded(
    number: int = 0, *, seconds: float | None = None, output: int | None = None, most: int | None = None
) -> RecordedRequest:
    names = [2**63 + 1, 2**63 + 2, 2**63 + 10 + number]
    return RecordedRequest(
        names, 40, PromptEnd(20, 77), seconds=seconds, output_tokens=output, most_output_tokens=most
    )


def test_requests_become_those_of_the_simulator() -> None:
    traffic = Traffic(10, 256)
    traffic.add(recorded(output=9))
    (request,) = traffic.arranged(1)
    check(request)
    assert request.blocks == (2**63 + 1, 2**63 + 2, 2**63 + 10)
    assert (request.prompt_tokens, request.output_tokens, request.user_turn_tokens) == (40, 9, 20)
    assert request.session == f"{77:x}"


def test_equal_blocks_are_one_object() -> None:
    traffic = Traffic(10, 256)
    for number in range(2):
        traffic.add(recorded(number))
    one, other = traffic.requests
    assert one.blocks[0] is other.blocks[0]


def test_the_first_ones_are_simulated_and_the_others_counted() -> None:
    traffic = Traffic(3, 256)
    for number in range(5):
        traffic.add(recorded(number))
    assert [request.blocks[-1] - 2**63 for request in traffic.requests] == [10, 11, 12]
    assert traffic.left_out == 2


def test_their_blocks_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "MOST_BLOCKS", 6)
    traffic = Traffic(100, 256)
    for number in range(5):
        traffic.add(recorded(number))
    assert (len(traffic.requests), traffic.left_out) == (2, 3)


def test_an_answer_is_as_long_as_recorded_else_assumed_else_limited() -> None:
    traffic = Traffic(10, 256)
    for request in (recorded(output=500, most=10), recorded(), recorded(most=10), recorded(most=4096)):
        traffic.add(request)
    assert [request.output_tokens for request in traffic.requests] == [500, 256, 10, 256]
    assert (traffic.counted_outputs, traffic.limited_outputs) == (1, 1)


def test_recorded_times_are_used_in_their_order_from_zero() -> None:
    traffic = Traffic(10, 256)
    for number, seconds in enumerate((105.0, 100.0, 102.0)):
        traffic.add(recorded(number, seconds=seconds))
    assert traffic.recorded_times
    arranged = traffic.arranged(1)
    assert [request.arrival_seconds for request in arranged] == [0, 2, 5]
    assert [request.blocks[-1] - 2**63 for request in arranged] == [11, 12, 10]


def test_a_sample_is_squeezed_to_the_rate_of_all() -> None:
    traffic = Traffic(10, 256)
    for number in range(3):
        traffic.add(recorded(number, seconds=10.0 * number))
    assert [request.arrival_seconds for request in traffic.arranged(1, sample=0.1)] == [0, 1, 2]


@pytest.mark.parametrize("times", [(None, None), (1.0, None), (5.0, 5.0)])
def test_without_usable_times_requests_come_by_chance_and_the_seed_decides(
    times: tuple[float | None, float | None],
) -> None:
    traffic = Traffic(10, 256)
    for number, seconds in enumerate(times):
        traffic.add(recorded(number, seconds=seconds))
    assert not traffic.recorded_times
    arrivals = [request.arrival_seconds for request in traffic.arranged(1)]
    assert 0 < arrivals[0] < arrivals[1]
    assert arrivals == [request.arrival_seconds for request in traffic.arranged(1)]
    assert arrivals != [request.arrival_seconds for request in traffic.arranged(2)]
