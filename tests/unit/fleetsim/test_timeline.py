from __future__ import annotations

from prefix_router.fleetsim.timeline import Timeline


def test_things_happen_in_the_order_of_their_time() -> None:
    happened: list[tuple[float, object]] = []
    timeline = Timeline()
    for seconds in (3.0, 1.0, 2.0):
        timeline.plan(seconds, lambda now, what: happened.append((now, what)), f"at {seconds}")
    timeline.run()
    assert happened == [(1.0, "at 1.0"), (2.0, "at 2.0"), (3.0, "at 3.0")]


def test_things_of_one_instant_happen_in_the_order_they_were_planned() -> None:
    happened: list[object] = []
    timeline = Timeline()
    for number in range(20):
        timeline.plan(1.0, lambda _now, what: happened.append(what), number)
    timeline.run()
    assert happened == list(range(20))


def test_what_happens_can_plan_what_comes_next() -> None:
    happened: list[float] = []
    timeline = Timeline()

    def tick(now: float, left: int) -> None:
        happened.append(now)
        if left:
            timeline.plan(now + 0.5, tick, left - 1)

    timeline.plan(0.0, tick, 3)
    timeline.run()
    assert happened == [0.0, 0.5, 1.0, 1.5]
