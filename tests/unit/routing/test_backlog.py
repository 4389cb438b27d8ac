from __future__ import annotations

import random
from collections import deque

import pytest

from prefix_router.routing.backlog import ASSUMED_TOKENS_PER_SECOND, Backlog, Speed, Work, fleet_speed


def work_for(backlog: Backlog, seconds: float, *, now: float = 0.0, streamed: bool = True) -> Work:
    """Add as much work as should take this long."""
    return backlog.add(round(seconds / backlog.seconds_per_token), now, streamed=streamed)


# In and out.


def test_work_counts_until_its_first_token() -> None:
    backlog = Backlog(fleet_speed())
    one, two = backlog.add(100, 0.0, streamed=True), backlog.add(50, 0.1, streamed=True)
    assert backlog.tokens == 150
    backlog.finish(one, 1.0)
    assert backlog.tokens == 50
    backlog.finish(two, 1.0)
    assert backlog.tokens == 0


def test_work_is_taken_away_once_however_often_that_is_said() -> None:
    backlog = Backlog(fleet_speed())
    one, _ = backlog.add(100, 0.0, streamed=True), backlog.add(50, 0.0, streamed=True)
    backlog.finish(one, 0.1)
    backlog.finish(one, 0.2)
    backlog.drop(one)
    backlog.expire(0.2)
    assert backlog.tokens == 50


def test_requests_may_get_their_first_tokens_in_any_order() -> None:
    backlog, draw = Backlog(fleet_speed()), random.Random(1)
    works = [backlog.add(draw.randrange(500), 0.0, streamed=True) for _ in range(100)]
    draw.shuffle(works)
    for done, work in enumerate(works):
        backlog.finish(work, 0.001 * done)
        assert backlog.tokens == sum(left.tokens for left in works[done + 1 :])
    assert not backlog._line


def test_a_request_of_which_everything_is_cached_is_no_work() -> None:
    backlog = Backlog(fleet_speed())
    work = backlog.add(0, 0.0, streamed=True)
    assert backlog.tokens == 0
    backlog.finish(work, 1.0)
    assert backlog.seconds_per_token == 1 / ASSUMED_TOKENS_PER_SECOND


# Lost signals.


def test_work_without_a_stream_is_taken_away_when_it_should_be_done() -> None:
    backlog = Backlog(fleet_speed())
    work_for(backlog, 1.0, streamed=False)
    work_for(backlog, 1.0, streamed=False)
    backlog.expire(0.99)
    assert backlog.tokens == 2 * ASSUMED_TOKENS_PER_SECOND
    backlog.expire(1.01)
    assert backlog.tokens == ASSUMED_TOKENS_PER_SECOND
    backlog.expire(2.01)
    assert backlog.tokens == 0


def test_a_first_token_that_never_comes_is_waited_for_longer_but_not_forever() -> None:
    backlog = Backlog(fleet_speed())
    work_for(backlog, 1.0)
    backlog.expire(5.0)
    assert backlog.tokens
    backlog.expire(6.5)
    assert not backlog.tokens


def test_of_what_was_given_up_nothing_is_learned_even_if_its_first_token_comes() -> None:
    backlog = Backlog(fleet_speed())
    late = work_for(backlog, 1.0)
    backlog.expire(100.0)
    backlog.finish(late, 101.0)
    assert backlog.tokens == 0
    assert backlog.seconds_per_token == 1 / ASSUMED_TOKENS_PER_SECOND


def test_after_a_lost_signal_nothing_is_learned_until_all_work_is_done() -> None:
    backlog = Backlog(fleet_speed())
    first, lost, last = (backlog.add(5000, 0.0, streamed=True) for _ in range(3))
    backlog.drop(lost)
    backlog.finish(first, 50.0)
    backlog.finish(last, 100.0)
    assert backlog.seconds_per_token == 1 / ASSUMED_TOKENS_PER_SECOND
    backlog.finish(backlog.add(5000, 200.0, streamed=True), 205.0)
    assert backlog.seconds_per_token > 1.5 / ASSUMED_TOKENS_PER_SECOND


def test_what_is_done_leaves_no_trace() -> None:
    backlog = Backlog(fleet_speed())
    for request in range(10_000):
        work = backlog.add(100, float(request), streamed=bool(request % 2))
        if request % 3:
            backlog.finish(work, request + 0.1)
        backlog.expire(request + 0.5)
        assert len(backlog._line) < 10


# Speed.


def test_before_anything_was_observed_a_speed_is_assumed() -> None:
    assert fleet_speed().seconds_per_token == 1 / ASSUMED_TOKENS_PER_SECOND
    assert Backlog(fleet_speed()).seconds_per_token == 1 / ASSUMED_TOKENS_PER_SECOND


def test_a_speed_is_a_mean_in_which_the_older_counts_less_and_less() -> None:
    speed = Speed(1.0, memory_tokens=10_000)
    for _ in range(100):
        speed.learn(1000, 2000.0)
    assert speed.seconds_per_token == pytest.approx(2.0, rel=0.01)
    speed.learn(1000, 500.0)
    assert 1.7 < speed.seconds_per_token < 1.95
    for _ in range(100):
        speed.learn(1000, 500.0)
    assert speed.seconds_per_token == pytest.approx(0.5, rel=0.01)


def test_a_backend_is_as_fast_as_the_fleet_unless_it_differs_clearly() -> None:
    fleet = Speed(1.0, memory_tokens=1e9)
    backlog = Backlog(fleet)
    for own, taken in ((1.9, 1.0), (2.1, 2.1), (0.6, 1.0), (0.4, 0.4)):
        backlog.own_speed.seconds_per_token = own
        assert backlog.seconds_per_token == taken
    assert fleet.band() == (0.5, 2.0)


def test_what_one_backend_observes_the_fleet_learns() -> None:
    fleet = fleet_speed()
    one, other = Backlog(fleet), Backlog(fleet)
    one.finish(one.add(10_000, 0.0, streamed=True), 1.0)
    assert other.seconds_per_token == fleet.seconds_per_token > 1.5 / ASSUMED_TOKENS_PER_SECOND


def test_little_work_teaches_nothing() -> None:
    backlog = Backlog(fleet_speed())
    for request in range(100):
        backlog.finish(backlog.add(1000, float(request), streamed=True), request + 0.9)
    assert backlog.seconds_per_token == 1 / ASSUMED_TOKENS_PER_SECOND


def test_a_period_that_took_no_time_teaches_nothing() -> None:
    backlog = Backlog(fleet_speed())
    backlog.finish(backlog.add(5000, 1.0, streamed=True), 1.0)
    assert backlog.seconds_per_token == 1 / ASSUMED_TOKENS_PER_SECOND


class Server:
    """Computes prompts one after the other, so many tokens a second."""

    def __init__(self, fleet: Speed, tokens_per_second: float) -> None:
        self.backlog = Backlog(fleet)
        self._pace = tokens_per_second
        self._free_at = 0.0
        self._line: deque[tuple[float, Work]] = deque()

    def take(self, tokens: int, now: float) -> None:
        self.run(now)
        self._free_at = max(self._free_at, now) + tokens / self._pace
        self._line.append((self._free_at, self.backlog.add(tokens, now, streamed=True)))

    def run(self, now: float) -> None:
        while self._line and self._line[0][0] <= now:
            done, work = self._line.popleft()
            self.backlog.finish(work, done)
        self.backlog.expire(now)


@pytest.mark.parametrize("load", [0.3, 0.9, 1.5])
@pytest.mark.parametrize("pace", [2_000.0, 20_000.0, 90_000.0])
def test_the_speed_that_is_learned_is_that_of_the_server(pace: float, load: float) -> None:
    server, draw, now = Server(fleet_speed(), pace), random.Random(1), 0.0
    for _ in range(1500):
        tokens = draw.randrange(200, 6000)
        now += draw.expovariate(1) * 3100 / pace / load
        if server.backlog.tokens < 60_000:
            server.take(tokens, now)
        else:
            server.run(now)
    assert 1 / server.backlog.seconds_per_token == pytest.approx(pace, rel=0.1)


def test_a_fleet_of_two_kinds_learns_the_speed_of_each() -> None:
    fleet = fleet_speed()
    servers = [Server(fleet, pace) for pace in (60_000.0, 60_000.0, 60_000.0, 10_000.0)]
    draw, now = random.Random(2), 0.0
    for _ in range(4000):
        now += draw.expovariate(12)
        draw.choices(servers, weights=(6, 6, 6, 1))[0].take(draw.randrange(1000, 9000), now)
    fast, *_, slow = (1 / server.backlog.seconds_per_token for server in servers)
    assert slow == pytest.approx(10_000, rel=0.15)
    assert fast == pytest.approx(60_000, rel=0.25)
