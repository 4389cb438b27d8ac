from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from prefix_router.routing.prefix_index import PrefixIndex

ROOM = 1000


def joined(count: int, most_levels: int = 10_000) -> tuple[PrefixIndex, list[int]]:
    index = PrefixIndex(most_levels)
    return index, [index.join() for _ in range(count)]


def test_an_index_knows_nothing_at_first() -> None:
    index, _ = joined(3)
    assert index.held_levels([1, 2, 3]) == {}
    assert index.held_levels([]) == {}
    assert index.holders(1) == []
    assert len(index) == 0


def test_who_got_a_prompt_has_its_levels() -> None:
    index, (a, b) = joined(2)
    index.record([1, 2, 3], a)
    assert index.held_levels([1, 2, 3]) == {a: 3}
    assert index.held_levels([1, 2, 9, 10]) == {a: 2}
    assert index.held_levels([8, 9]) == {}
    index.record([1, 2], b)
    assert index.held_levels([1, 2, 3]) == {a: 3, b: 2}
    assert sorted(index.holders(1)) == [a, b]
    assert index.holders(3) == [a]


def test_many_may_have_the_same_level() -> None:
    index, slots = joined(100)
    for slot in slots:
        index.record([1, 2, 100 + slot], slot)
        index.record([1, 2, 100 + slot], slot)
    assert sorted(index.holders(2)) == slots
    assert index.held_levels([1, 2, 105]) == {slot: 3 if slot == 5 else 2 for slot in slots}


def test_a_level_is_evicted_when_as_much_came_since_as_there_is_room() -> None:
    index, (a, b) = joined(2)
    index.record([1], a)
    index.record([1], b)
    index.advance(a, ROOM, ROOM)
    assert index.held_levels([1]) == {a: 1, b: 1}
    index.advance(a, 1, ROOM)
    assert index.held_levels([1]) == {b: 1}


def test_what_is_used_stays() -> None:
    index, (a,) = joined(1)
    index.record([1], a)
    index.record([2], a)
    for _ in range(3):
        index.advance(a, ROOM // 2, ROOM)
        index.record([1], a)
    assert index.holders(1) == [a]
    assert index.holders(2) == []


def test_what_was_evicted_does_not_come_back_with_more_room() -> None:
    index, (a,) = joined(1)
    index.record([1], a)
    index.advance(a, ROOM + 1, ROOM)
    index.advance(a, 0, 100 * ROOM)
    assert index.holders(1) == []
    index.record([1], a)
    index.advance(a, 50 * ROOM, 100 * ROOM)
    assert index.holders(1) == [a]


def test_a_holder_may_lose_the_end_of_a_prompt_before_its_beginning() -> None:
    index, (a, b) = joined(2)
    index.record([1, 2, 3], a)
    index.record([1, 2, 3], b)
    index.advance(a, 600, ROOM)
    index.record([1], a)
    index.advance(a, 600, ROOM)
    assert index.held_levels([1, 2, 3]) == {a: 1, b: 3}


def test_who_has_lost_everything_is_forgotten_and_may_get_it_again() -> None:
    index, (a, b) = joined(2)
    for slot in (a, b):
        index.record([1, 2], slot)
    index.forget(a)
    assert index.held_levels([1, 2]) == {b: 2}
    index.record([1], a)
    assert index.held_levels([1, 2]) == {a: 1, b: 2}


def test_a_slot_is_used_again_and_its_new_owner_has_nothing() -> None:
    index, (a, b, c) = joined(3)
    index.record([1], b)
    index.record([1], a)
    index.leave(b)
    index.leave(a)
    assert index.holders(1) == []
    assert [index.join(), index.join(), index.join()] == [a, b, c + 1]
    assert index.holders(1) == []
    index.record([1], a)
    assert index.holders(1) == [a]


def test_there_are_as_many_slots_as_fit_an_entry() -> None:
    index = PrefixIndex()
    slots = [index.join() for _ in range(1 << 16)]
    index.record([1], slots[0])
    index.record([1], slots[-1])
    assert index.held_levels([1]) == {slots[0]: 1, slots[-1]: 1}
    with pytest.raises(OverflowError, match="65536 slots"):
        index.join()
    index.leave(7)
    assert index.join() == 7


def test_those_behind_their_horizon_go_when_a_holder_is_added() -> None:
    index, (a, b, c) = joined(3)
    index.record([1], a)
    index.record([1], b)
    index.forget(a)
    index.record([1], c)
    entry = index._young[1]
    assert isinstance(entry, dict)
    assert sorted(entry) == [b, c]


def test_one_that_is_behind_its_horizon_makes_way_for_the_next_one() -> None:
    index, (a, b) = joined(2)
    index.record([1], a)
    index.forget(a)
    index.record([1], b)
    assert isinstance(index._young[1], int)
    assert index.holders(1) == [b]


@pytest.mark.parametrize("most_levels", [2, 50, 1000])
def test_it_never_remembers_more_than_it_may(most_levels: int) -> None:
    index, slots = joined(4, most_levels)
    draw = random.Random(1)
    for _ in range(5000):
        index.record([draw.getrandbits(60) for _ in range(draw.randrange(1, 4))], draw.choice(slots))
        assert len(index) <= most_levels + 3


def test_what_was_used_lately_outlives_what_was_not() -> None:
    index, (a, b) = joined(2, most_levels=100)
    index.record([1], a)
    index.record([1], b)
    index.record([2], a)
    for name in range(1000, 1500):
        index.record([name], b)
        index.record([1], a)
    assert sorted(index.holders(1)) == [a, b]
    assert index.holders(2) == []


def test_what_is_in_the_older_generation_is_still_known_and_goes_to_the_younger_one_with_use() -> None:
    index, (a, b, c) = joined(3, most_levels=20)
    index.record([1, 2, 3], a)
    index.record([1, 2], b)
    index.record(range(100, 107), c)
    assert not index._young
    assert index.held_levels([1, 2, 3]) == {a: 3, b: 2}
    index.record([1, 2, 3], c)
    assert index.held_levels([1, 2, 3, 4]) == {a: 3, b: 2, c: 3}
    assert set(index._young) == {1, 2, 3}
    index.record([1, 2, 3], a)
    index.record(range(200, 207), b)
    assert not index._young
    assert index.held_levels([1, 2, 3]) == {a: 3, b: 2, c: 3}


def test_some_who_have_lost_a_prompt_do_not_hide_those_who_have_it() -> None:
    index, slots = joined(10)
    for slot in slots:
        index.record([1, 2, 3], slot)
    for slot in slots[:4]:
        index.forget(slot)
    index.record([1, 2, 3, 4], slots[9])
    index.record([1], slots[0])
    assert index.held_levels([1, 2, 3, 4]) == {0: 1, **dict.fromkeys(slots[4:9], 3), 9: 4}


@dataclass
class Holder:
    """A cache as the index takes it to be: what it has, and when, in its own new tokens, it last got it."""

    odometer: int = 0
    levels: dict[int, int] = field(default_factory=dict)

    def advance(self, tokens: int, room: int) -> None:
        self.odometer += tokens
        self.levels = {name: at for name, at in self.levels.items() if at >= self.odometer - room}


class IndexAndModel(RuleBasedStateMachine):
    """Prompts are branches of a tree; what an index says of each must be what plain sets say."""

    owners = Bundle("owners")
    prompts = st.lists(st.integers(0, 2), min_size=1, max_size=6)

    @initialize()
    def empty(self) -> None:
        self.index = PrefixIndex()
        self.model: dict[int, Holder] = {}
        self.gone: set[int] = set()

    @staticmethod
    def names(prompt: list[int]) -> list[int]:
        return [hash(tuple(prompt[: length + 1])) for length in range(len(prompt))]

    @rule(target=owners)
    def join(self) -> int:
        slot = self.index.join()
        assert slot not in self.model
        assert slot <= len(self.model)
        self.model[slot] = Holder()
        return slot

    @rule(slot=owners)
    def leave(self, slot: int) -> None:
        if self.model.pop(slot, None) is not None:
            self.index.leave(slot)

    @rule(slot=owners)
    def forget(self, slot: int) -> None:
        if slot in self.model:
            self.index.forget(slot)
            self.model[slot] = Holder()

    @rule(slot=owners, tokens=st.integers(0, 40), room=st.sampled_from([30, 100]))
    def advance(self, slot: int, tokens: int, room: int) -> None:
        if slot in self.model:
            self.index.advance(slot, tokens, room)
            self.model[slot].advance(tokens, room)

    @rule(slot=owners, prompt=prompts)
    def record(self, slot: int, prompt: list[int]) -> None:
        if slot in self.model:
            self.index.record(self.names(prompt), slot)
            holder = self.model[slot]
            holder.levels |= dict.fromkeys(self.names(prompt), holder.odometer)

    @rule(prompt=prompts)
    def ask(self, prompt: list[int]) -> None:
        expected: defaultdict[int, int] = defaultdict(int)
        for slot, holder in self.model.items():
            for name in self.names(prompt):
                if name in holder.levels:
                    expected[slot] += 1
        assert self.index.held_levels(self.names(prompt)) == dict(expected)
        assert set(self.index.holders(self.names(prompt)[0])) == set(expected)

    @invariant()
    def everybody_has_the_beginnings_of_what_they_have(self) -> None:
        for first in range(3):
            for second in range(3):
                self.ask([first, second, 0])


TestIndexAndModel = IndexAndModel.TestCase
TestIndexAndModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
