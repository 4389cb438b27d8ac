"""What leaves when a model needs room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefix_router.model_cache.capacity import Plan, Space, Tenant, plan


def space(available: int) -> Space:
    return Space(capacity=None, used=0, reserved=0, disk_free=available, keep_free=0)


def tenant(name: str, last_used: float, *, kept: bool = False, **blobs: int) -> Tenant:
    return Tenant(name, "r", last_used, kept, blobs)


def names(plan: Plan) -> list[str]:
    return [tenant.name for tenant in plan.evicted]


def test_what_fits_sends_nobody_away() -> None:
    assert plan(space(10), [tenant("a", 1, x=5)], 10) == Plan((), 10, True)


def test_the_least_recently_used_goes_first_and_only_as_much_as_it_takes() -> None:
    tenants = [tenant("new", 3, x=10), tenant("old", 1, y=10), tenant("mid", 2, z=10)]
    assert names(plan(space(0), tenants, 10)) == ["old"]
    assert names(plan(space(0), tenants, 11)) == ["old", "mid"]


def test_what_is_kept_never_leaves() -> None:
    tenants = [tenant("pinned", 1, kept=True, x=10), tenant("free", 2, y=5)]
    assert plan(space(0), tenants, 10) == Plan((tenants[1],), 5, False)


def test_a_file_that_somebody_else_has_frees_nothing() -> None:
    tenants = [tenant("shares", 1, x=10), tenant("stays", 2, kept=True, x=10), tenant("alone", 3, y=10)]
    assert names(plan(space(0), tenants, 10)) == ["alone"]


def test_a_file_of_two_is_freed_when_both_leave() -> None:
    tenants = [tenant("one", 1, x=10), tenant("two", 2, x=10)]
    assert names(plan(space(0), tenants, 10)) == ["one", "two"]


def test_a_file_that_the_new_model_shares_is_not_counted_as_freed() -> None:
    tenants = [tenant("old", 1, shared=10, own=1), tenant("new", 2, y=5)]
    assert names(plan(space(0), tenants, 5, wanted={"shared"})) == ["new"]


def test_limits_of_the_cache_and_of_the_disk_hold_both() -> None:
    assert Space(capacity=100, used=40, reserved=10, disk_free=1000, keep_free=0).available == 50
    assert Space(capacity=100, used=40, reserved=10, disk_free=60, keep_free=20).available == 30
    assert Space(capacity=100, used=120, reserved=0, disk_free=60, keep_free=0).available == -20


TENANTS = st.lists(
    st.builds(
        Tenant,
        name=st.uuids().map(str),
        revision=st.just("r"),
        last_used=st.floats(0, 100),
        kept=st.booleans(),
        blobs=st.dictionaries(st.sampled_from("abcdef"), st.just(7), max_size=4),
    ),
    max_size=6,
)


@given(TENANTS, st.integers(0, 30), st.integers(0, 40), st.sets(st.sampled_from("abcdef")))
def test_a_plan_is_enough_needed_and_spares_what_is_kept(
    tenants: list[Tenant], free: int, needed: int, wanted: set[str]
) -> None:
    found = plan(space(free), tenants, needed, wanted)
    assert not any(tenant.kept for tenant in found.evicted)
    stay = {blob for tenant in tenants if tenant not in found.evicted for blob in tenant.blobs} | wanted
    freed = 7 * len({blob for tenant in found.evicted for blob in tenant.blobs} - stay)
    assert found.available == free + freed
    assert found.fits == (found.available >= needed)
    if not found.fits:
        assert len(found.evicted) == sum(not tenant.kept for tenant in tenants)
        return
    for spared in found.evicted:  # without any one of them it would not be enough
        others = [tenant for tenant in found.evicted if tenant is not spared]
        stay = {blob for tenant in tenants if tenant not in others for blob in tenant.blobs} | wanted
        assert free + 7 * len({blob for tenant in others for blob in tenant.blobs} - stay) < needed
