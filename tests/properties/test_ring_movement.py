"""When the membership changes, only the keys that must move do, and they spread evenly."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.routing.fleet import BackendName
from prefix_router.routing.ring import Ring
from tests.support.fleets import spread_keys

VIRTUAL_NODES = 128

names = st.from_regex(
    r"[a-z0-9]{1,12}(\.[a-z]{2,8})?:[1-9][0-9]{1,4}|\[[0-9a-f]{1,4}::[0-9a-f]{1,4}\]:80", fullmatch=True
)
memberships = st.dictionaries(names.map(BackendName), st.integers(1, 4), min_size=2, max_size=12)
equal_memberships = st.sets(names.map(BackendName), min_size=3, max_size=12).map(
    lambda members: dict.fromkeys(sorted(members), 1)
)


@given(memberships, st.data())
@settings(max_examples=25, deadline=None)
def test_removing_a_backend_moves_its_own_keys_to_the_next_on_the_ring_and_no_others(
    weights: dict[BackendName, int], data: st.DataObject
) -> None:
    removed = data.draw(st.sampled_from(sorted(weights)))
    before = Ring(weights, VIRTUAL_NODES)
    after = Ring({name: weight for name, weight in weights.items() if name != removed}, VIRTUAL_NODES)
    for key in spread_keys(100):
        walk = [name for name in before.successors(key) if name != removed]
        assert list(after.successors(key)) == walk


@given(memberships, names.map(BackendName), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_adding_a_backend_moves_keys_to_the_newcomer_only(
    weights: dict[BackendName, int], newcomer: BackendName, weight: int
) -> None:
    weights.pop(newcomer, None)
    before = Ring(weights, VIRTUAL_NODES)
    after = Ring({**weights, newcomer: weight}, VIRTUAL_NODES)
    for key in spread_keys(100):
        assert after.owner(key) in (before.owner(key), newcomer)


@given(equal_memberships, st.data())
@settings(max_examples=25, deadline=None)
def test_keys_of_a_removed_backend_spread_evenly_over_all_others(
    weights: dict[BackendName, int], data: st.DataObject
) -> None:
    removed = data.draw(st.sampled_from(sorted(weights)))
    before = Ring(weights, VIRTUAL_NODES)
    after = before.with_weights({name: 1 for name in weights if name != removed})
    others = len(weights) - 1
    fair = before.shares[removed] / others
    # Each arc of the removed backend has an exponential length and goes to any of the others: the sum that
    # one of them gets has this relative standard deviation. Seven of them are out of reach of chance.
    deviation = ((2 - 1 / others) / (VIRTUAL_NODES / others)) ** 0.5
    for name in after.weights:
        gain = after.shares[name] - before.shares[name]
        assert -1e-12 <= gain <= fair * (1 + 7 * deviation)


@given(equal_memberships)
@settings(max_examples=25, deadline=None)
def test_newcomer_takes_its_share_evenly_from_all(weights: dict[BackendName, int]) -> None:
    newcomer = BackendName("the-newcomer")
    before = Ring(weights, VIRTUAL_NODES)
    after = before.with_weights({**weights, newcomer: 1})
    count = len(weights)
    fair = after.shares[newcomer] / count
    deviation = ((2 - 1 / count) / (VIRTUAL_NODES / count)) ** 0.5
    for name in weights:
        loss = before.shares[name] - after.shares[name]
        assert -1e-12 <= loss <= fair * (1 + 7 * deviation)


@given(memberships, memberships)
@settings(max_examples=20, deadline=None)
def test_history_of_a_ring_leaves_no_trace(
    earlier: dict[BackendName, int], later: dict[BackendName, int]
) -> None:
    for target in (later, {**earlier, **later}, dict(list(earlier.items())[1:])):
        changed, built = Ring(earlier, 32).with_weights(target), Ring(target, 32)
        assert changed.shares == built.shares
        for key in spread_keys(30):
            assert list(changed.successors(key)) == list(built.successors(key))
