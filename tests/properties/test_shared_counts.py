"""Whatever processes take, give back and lose by dying: what is counted is what living processes hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.proxy.lease import Lease
from prefix_router.routing.fleet import Backend, BackendName, BackendState, Member
from prefix_router.workers.shared_counts import SUPERVISOR, SharedCounts

WORKERS, SLOTS = 3, 4

steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, WORKERS), st.integers(0, SLOTS - 1), st.booleans()),
        st.tuples(st.sampled_from(["prove", "release"]), st.integers(0, 100)),
        st.tuples(st.just("die"), st.integers(1, WORKERS)),
    ),
    max_size=60,
)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_counts_are_what_living_processes_hold(script: list[tuple[object, ...]]) -> None:
    counts = SharedCounts.create(WORKERS, SLOTS)
    # For each lease that is held: who holds it, on what, and whether it is an unproven trial.
    held: list[tuple[Lease, int, int, bool]] = []
    for step in script:
        match step:
            case ("take", int(process), int(slot), bool(trial)):
                state = BackendState.HALF_OPEN if trial else BackendState.HEALTHY
                backend = Backend(BackendName(str(slot)), "http://x")
                lease = Lease(Member(backend, state, counts.in_flight(slot, process)))
                held.append((lease, process, slot, trial))
            case ("prove", int(at)) if held:
                lease, process, slot, _ = held[at % len(held)]
                lease.prove()
                held[at % len(held)] = lease, process, slot, False
            case ("release", int(at)) if held:
                held.pop(at % len(held))[0].release()
            case ("die", int(process)):
                lost = sum(holder == process for _, holder, _, _ in held)
                assert counts.reclaim(process) == lost
                held = [entry for entry in held if entry[1] != process]
        for slot in range(SLOTS):
            counter = counts.in_flight(slot, SUPERVISOR)
            assert counter.count == sum(where == slot for _, _, where, _ in held)
            assert counter.trials == sum(trial for _, _, where, trial in held if where == slot)
    for lease, *_ in held:
        lease.release()
    assert not any(counts.in_use(slot) for slot in range(SLOTS))
    counts.close()
