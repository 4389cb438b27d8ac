"""What is held, seen from the events: `engine`, `names` and `index` together."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from prefix_router.kv_events import engine as engine_module
from prefix_router.kv_events.engine import EngineBlocks
from prefix_router.kv_events.events import Event, decode, pack
from prefix_router.kv_events.index import MOST_ADAPTERS, KvIndex
from prefix_router.kv_events.names import prompt_blocks
from prefix_router.routing.fleet import BackendName
from prefix_router.routing.holdings import Holdings
from tests.support.kv_publisher import cleared, removed, stored

A, B = BackendName("a"), BackendName("b")
PROMPT = range(21)
"""Five blocks of four tokens, and one token that is always computed."""


def events(*written: Any) -> Iterable[Event]:
    batch = decode(msgspec.msgpack.encode([0.0, list(written), 0]))
    assert batch is not None
    assert not batch.malformed
    return batch.events


class Fleet:
    """An index, and engines that are in sync."""

    def __init__(self, most_blocks: int = 1000) -> None:
        self.index = KvIndex(most_blocks)

    def engine(self, name: BackendName = A, rank: int = 0) -> EngineBlocks:
        engine = self.index.join(name, rank)
        engine.in_sync = True
        return engine

    def tell(self, engine: EngineBlocks, *written: Any) -> None:
        self.index.apply(engine, events(*written))

    def held(self, prompt: Iterable[int] = PROMPT, **request: Any) -> dict[str, int]:
        held = self.index.held_of_prompt(pack(list(prompt)), **request)
        return {str(name): tokens for name, tokens in held.items()}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_nobody_knows_anything_of_a_backend_that_is_out_of_sync(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1], range(4)))
    assert fleet.held() == {"a": 4}
    engine.in_sync = False
    assert fleet.held() == {}
    assert not fleet.index.is_anybody_in_sync()


def test_full_blocks_from_the_first_on_are_held(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1, 2], range(8)))
    assert fleet.held() == {"a": 8}
    fleet.tell(engine, stored([3], range(8, 12), parent=2))
    assert fleet.held() == {"a": 12}
    assert fleet.held([*range(4), 99, *range(5, 21)]) == {"a": 4}
    assert fleet.held([99, *range(1, 21)]) == {"a": 0}


@pytest.mark.parametrize(("tokens", "held"), [(0, 0), (1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (30, 8)])
def test_the_last_token_of_a_prompt_is_always_computed(fleet: Fleet, tokens: int, held: int) -> None:
    fleet.tell(fleet.engine(), stored([1, 2], range(8)))
    assert fleet.held(range(tokens)) == {"a": held}


def test_equal_blocks_after_different_beginnings_are_different(fleet: Fleet) -> None:
    fleet.tell(fleet.engine(), stored([1, 2], [*range(4), *range(4)]), stored([3], range(100, 104), parent=2))
    assert fleet.held([*range(100, 104), 1]) == {"a": 0}
    assert fleet.held([*range(4), *range(4), *range(100, 104), 1]) == {"a": 12}


def test_what_is_removed_is_not_held_and_what_follows_it_is_of_no_use(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1, 2, 3], range(12)), removed(2))
    assert fleet.held() == {"a": 4}
    assert len(engine) == 2
    fleet.tell(engine, stored([2], range(4, 8), parent=1))
    assert fleet.held() == {"a": 12}


def test_removing_what_was_never_there_does_nothing(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, removed(5), stored([1], range(4)), removed(6), removed(1), removed(1))
    assert fleet.held() == {"a": 0}


def test_a_block_is_held_until_its_last_copy_goes(fleet: Fleet) -> None:
    """The last block of a prompt that is asked again is computed again, although it is there."""
    engine = fleet.engine()
    fleet.tell(engine, stored([1, 2], range(8)), stored([2], range(4, 8), parent=1))
    fleet.tell(engine, removed(2))
    assert fleet.held() == {"a": 8}
    fleet.tell(engine, removed(2))
    assert fleet.held() == {"a": 4}
    fleet.tell(engine, stored([1], range(4)), removed(1))
    assert fleet.held() == {"a": 4}


def test_a_report_of_blocks_that_were_used_again_is_not_another_copy(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1, 2], range(8)), stored([1, 2], range(8)), removed(2))
    assert fleet.held() == {"a": 4}


def test_two_hashes_of_one_beginning_are_held_until_both_go(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1], range(4)), stored([b"other"], range(4)))
    assert len(engine) == 2
    fleet.tell(engine, removed(1))
    assert fleet.held() == {"a": 4}
    fleet.tell(engine, removed(b"other"))
    assert fleet.held() == {"a": 0}
    assert len(fleet.index) == 0


def test_a_parent_that_is_gone_still_names_its_children(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "REMEMBERED", 2)
    engine = fleet.engine()
    fleet.tell(engine, stored([1], range(4)), removed(1), stored([2], range(4, 8), parent=1))
    fleet.tell(engine, stored([1], range(4)))
    assert fleet.held() == {"a": 8}
    fleet.tell(engine, stored([7, 8, 9], range(50, 62)), removed(9, 8, 7), removed(1))
    fleet.tell(engine, stored([3], range(60, 64), parent=9))
    assert engine.skipped == 1, "only the last two are remembered"


def test_clearing_forgets_everything_block_size_too(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1], range(4)), cleared(), stored([9], range(5), block_size=5))
    engine.in_sync = True
    assert fleet.held() == {"a": 5}


def test_what_was_cleared_is_swept_up_with_the_next_events(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored(range(1, 501), range(2000)))
    fleet.tell(engine, cleared())
    for _ in range(5):
        fleet.tell(engine, removed(1))
    assert len(fleet.index) == 0


def test_the_bit_of_a_cleared_engine_never_speaks_for_another(fleet: Fleet) -> None:
    one, other = fleet.engine(A), fleet.engine(B)
    for _ in range(20):
        fleet.tell(one, stored(range(1, 101), range(400)))
        fleet.tell(one, cleared())
        one.in_sync = True
        fleet.tell(other, stored([1], range(50, 54)))
        assert fleet.held() == {"a": 0, "b": 0}


def test_each_backend_holds_what_it_said(fleet: Fleet) -> None:
    one, other = fleet.engine(A), fleet.engine(B)
    fleet.tell(one, stored([1, 2, 3], range(12)))
    fleet.tell(other, stored([b"x", b"y"], range(8)))
    assert fleet.held() == {"a": 12, "b": 8}
    fleet.tell(one, removed(1))
    assert fleet.held() == {"a": 0, "b": 8}


def test_a_backend_that_leaves_is_forgotten_and_says_nothing_more(fleet: Fleet) -> None:
    one, other = fleet.engine(A), fleet.engine(B)
    fleet.tell(one, stored([1], range(4)))
    fleet.index.leave(A)
    one.clear()
    fleet.index.apply(one, events(stored([1], range(4))))
    fleet.tell(other, stored([1], range(8, 12)))
    third = fleet.engine(BackendName("c"))
    assert fleet.held() == {"b": 0, "c": 0}
    assert third.bit != other.bit


def test_of_several_engines_behind_one_backend_the_best_counts(fleet: Fleet) -> None:
    first, second = fleet.engine(A, 0), fleet.engine(A, 1)
    fleet.tell(first, stored([1], range(4)))
    fleet.tell(second, stored([1, 2], range(8)))
    assert fleet.held() == {"a": 8}
    second.in_sync = False
    assert fleet.held() == {"a": 4}


def test_backends_may_have_blocks_of_different_sizes(fleet: Fleet) -> None:
    fleet.tell(fleet.engine(A), stored([1], range(16), block_size=16))
    fleet.tell(fleet.engine(B), stored([1, 2, 3], range(12), block_size=4))
    fleet.engine(BackendName("c"))
    assert fleet.held() == {"a": 16, "b": 12, "c": 0}


def test_adapters_do_not_mix_with_their_base(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1], range(4), lora_name="sql", extra_keys=[["sql"]]))
    assert fleet.held(model="sql") == {"a": 4}
    assert fleet.held(model="base") == {"a": 0}
    fleet.tell(engine, stored([2, 3], range(8)))
    assert fleet.held(model="sql") == {"a": 4}
    assert fleet.held(model="base") == {"a": 8}


def test_a_salt_keeps_blocks_apart_and_is_found_by_who_says_it(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1, 2], range(8), extra_keys=[["pepper"], None]))
    assert fleet.held() == {"a": 0}
    assert fleet.held(salt="sugar") == {"a": 0}
    assert fleet.held(salt="pepper") == {"a": 8}


def test_a_salt_of_an_adapter(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1], range(4), lora_name="sql", extra_keys=[["sql", "pepper"]]))
    assert fleet.held(model="sql", salt="pepper") == {"a": 4}
    assert fleet.held(model="sql") == {"a": 0}


@pytest.mark.parametrize("keys", [[["image", 0]], [b"digest"], ["salt", ["image", 0]], [{"a": 1}]])
def test_no_plain_prompt_finds_blocks_with_media(fleet: Fleet, keys: list[Any]) -> None:
    fleet.tell(fleet.engine(), stored([1], range(4), extra_keys=[keys]))
    assert fleet.held() == {"a": 0}
    assert fleet.held(salt="salt") == {"a": 0}


def test_media_in_a_later_block_end_what_a_plain_prompt_finds(fleet: Fleet) -> None:
    fleet.tell(fleet.engine(), stored([1, 2], range(8), extra_keys=[None, ["text"]]))
    assert fleet.held() == {"a": 4}
    assert fleet.held(salt="text") == {"a": 0}


def test_offloaded_blocks_are_counted_and_not_held(fleet: Fleet) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1], range(4), medium="CPU"), stored([1], range(4), medium="STORAGE"))
    assert (fleet.held(), engine.offloaded) == ({"a": 0}, 2)
    fleet.tell(engine, stored([1], range(4), medium=None))
    fleet.tell(engine, removed(1, medium="CPU"))
    assert fleet.held() == {"a": 4}


def test_of_a_hybrid_model_the_cache_of_full_attention_counts(fleet: Fleet) -> None:
    engine = fleet.engine()
    window: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "sliding_window"}
    full: dict[str, Any] = {"group_idx": 1, "kv_cache_spec_kind": "full_attention"}
    fleet.tell(engine, stored([1], range(4), **window), stored([1], range(4), **full))
    assert fleet.held() == {"a": 4}
    fleet.tell(engine, removed(1, group_idx=0))
    assert fleet.held() == {"a": 4}
    fleet.tell(engine, removed(1, group_idx=1))
    assert fleet.held() == {"a": 0}
    assert engine.skipped == 1


@pytest.mark.parametrize(
    "event",
    [
        stored([2], range(4), parent=77),
        stored([2], range(5)),
        stored([2], range(3), block_size=3),
        stored([2], [], block_size=0),
        stored([2], range(4), group_idx=5),
    ],
    ids=["unknown parent", "skipped blocks", "another size", "no size", "another cache"],
)
def test_blocks_that_cannot_be_placed_are_skipped(fleet: Fleet, event: Any) -> None:
    engine = fleet.engine()
    fleet.tell(engine, stored([1], range(4)), event)
    assert (len(engine), engine.skipped) == (1, 1)


def test_an_engine_with_too_many_blocks_is_given_up_until_it_is_cleared() -> None:
    fleet = Fleet(most_blocks=3)
    engine = fleet.engine()
    fleet.tell(engine, stored([1, 2, 3], range(12)))
    assert fleet.held() == {"a": 12}
    fleet.tell(engine, stored([4], range(12, 16), parent=3), stored([5], range(4)))
    assert engine.overflown
    assert (len(engine), fleet.held()) == (0, {})
    fleet.tell(engine, cleared(), stored([1], range(4)))
    assert (len(engine), bool(engine.overflown)) == (1, False)
    fleet.index.limit(0)
    fleet.tell(engine, stored([2], range(4, 8), parent=1))
    assert engine.overflown


def test_the_names_of_adapters_are_bounded() -> None:
    fleet = Fleet(most_blocks=2 * MOST_ADAPTERS)
    engine = fleet.engine()
    for number in range(MOST_ADAPTERS + 1):
        fleet.tell(engine, stored([number], range(4), lora_name=f"adapter-{number}"))
    assert fleet.held(model=f"adapter-{MOST_ADAPTERS}") == {"a": 4}
    assert fleet.held(model="adapter-0") == {"a": 0}, "taken for a base model"


def test_it_answers_a_strategy(fleet: Fleet) -> None:
    fleet.tell(fleet.engine(), stored([1, 2], range(8)))
    holdings: Holdings = fleet.index
    assert holdings.held_tokens(list(prompt_blocks(pack(list(PROMPT)), 4))) == {"a": 8}
    assert holdings.held_tokens([]) == {"a": 0}


def test_it_agrees_with_sets_of_beginnings() -> None:
    """Random stores, copies, removals and clearings of two engines against the plainest possible model."""
    draws = random.Random(7)
    fleet = Fleet()
    engines = {A: fleet.engine(A), B: fleet.engine(B)}
    truth: dict[BackendName, dict[int, tuple[tuple[int, ...], int]]] = {A: {}, B: {}}
    for _ in range(3000):
        name = draws.choice((A, B))
        engine, held = engines[name], truth[name]
        if draws.random() < 0.005:
            fleet.tell(engine, cleared())
            engine.in_sync = True
            held.clear()
        elif held and draws.random() < 0.45:
            gone = draws.choice(list(held))
            fleet.tell(engine, removed(gone))
            beginning, copies = held.pop(gone)
            if copies > 1:
                held[gone] = beginning, copies - 1
        else:
            parent = draws.choice([None, *held])
            above = held[parent][0] if parent is not None else ()
            beginning = (*above, *(draws.randrange(2) for _ in range(2)))
            number = hash(beginning)
            copies = held.get(number, (beginning, 0))[1]
            fleet.tell(engine, stored([number], beginning[-2:], parent=parent, block_size=2))
            held[number] = beginning, copies + 1
        prompt = [draws.randrange(2) for _ in range(9)]
        for backend, tokens in fleet.held(prompt).items():
            beginnings = {beginning for beginning, _ in truth[BackendName(backend)].values()}
            expected = 0
            while expected + 2 < len(prompt) and tuple(prompt[: expected + 2]) in beginnings:
                expected += 2
            assert tokens == expected
