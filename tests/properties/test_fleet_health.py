"""The health of a fleet under any evidence in any order: never too much ejected, somebody to ask, a way back.

The model keeps what was told and what was published; every rule is a thing that can happen to a fleet.
"""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from prefix_router.proxy.fleet_store import FleetStore
from prefix_router.proxy.lease import Lease
from prefix_router.routing.fleet import Backend, BackendName, BackendState, InFlight
from prefix_router.routing.health import HealthEvent, HealthPolicy
from tests.support.events import Recorder

IN_SERVICE = frozenset({BackendState.STARTING, BackendState.HEALTHY})
OUT = frozenset({BackendState.EJECTED, BackendState.DOWN, BackendState.HALF_OPEN})
MODELS = ("m", "n")
PROBES = (HealthEvent.PROBE_OK, HealthEvent.PROBE_BAD, HealthEvent.UNREACHABLE)

picks = st.integers(0, 2**16)
policies = st.builds(
    HealthPolicy,
    probe_failures=st.integers(1, 3),
    request_failures=st.integers(1, 3),
    cooldown_seconds=st.integers(1, 5).map(float),
    recovery_successes=st.integers(1, 3),
    max_ejected_fraction=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
)


class FleetHealth(RuleBasedStateMachine):
    """One fleet of up to five backends, with leases on them."""

    @initialize(
        count=st.integers(1, 5),
        policy=policies,
        models=st.lists(st.sets(st.sampled_from(MODELS), min_size=1), min_size=5, max_size=5),
    )
    def begin(self, count: int, policy: HealthPolicy, models: list[set[str]]) -> None:
        self.now = 0.0
        self.policy = policy
        self.recorder = Recorder()
        self.backends = [
            Backend(BackendName(f"b{index}"), f"http://b{index}:1", 1, frozenset(models[index]))
            for index in range(count)
        ]
        self.store = FleetStore(
            self.backends,
            virtual_nodes=4,
            policy=policy,
            observer=self.recorder,
            clock=lambda: self.now,
        )
        self.leases: list[tuple[InFlight, Lease]] = []
        self.known_counters: dict[BackendName, InFlight] = {}

    def _states(self) -> dict[BackendName, BackendState]:
        return {member.name: member.state for member in self.store.fleet.members}

    def _pick(self, pick: int) -> Backend:
        return self.backends[pick % len(self.backends)]

    @rule(pick=picks, event=st.sampled_from(HealthEvent), suspect=st.none() | st.integers(0, 2))
    def evidence(self, pick: int, event: HealthEvent, suspect: int | None) -> None:
        backend = self._pick(pick)
        before = self._states()
        taking_part = {member.name for member in self.store.fleet.members if not member.draining}
        published = len(self.recorder.changed)
        self.store.report(backend, event, "told", suspect)
        after = self._states()
        changed = {name for name, state in after.items() if before[name] is not state}
        assert changed <= {backend.name}
        assert len(self.recorder.changed) - published == len(changed)
        if changed and before[backend.name] in IN_SERVICE and after[backend.name] is BackendState.EJECTED:
            out = sum(after[name] in OUT for name in taking_part)
            allowed = self.policy.max_ejected_fraction * len(taking_part)
            assert backend.name not in taking_part or out <= allowed

    @rule(seconds=st.integers(1, 6))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(pick=picks, draining=st.booleans())
    def drain(self, pick: int, draining: bool) -> None:
        assert self.store.set_draining(self._pick(pick).name, draining)

    @rule(pick=picks)
    def lease(self, pick: int) -> None:
        members = self.store.fleet.routable(None)
        if members:
            member = members[pick % len(members)]
            self.leases.append((member.in_flight, Lease(member)))

    @rule(pick=picks, prove=st.booleans())
    def end_of_a_lease(self, pick: int, prove: bool) -> None:
        if self.leases:
            _, lease = self.leases[pick % len(self.leases)]
            if prove:
                lease.prove()
            else:
                lease.release()
                self.leases.pop(pick % len(self.leases))

    @rule(keep=st.sets(st.integers(0, 4), min_size=1))
    def reload(self, keep: set[int]) -> None:
        """A reload without some backends, and one with all of them again: those come back as new ones."""
        staying = [backend for index, backend in enumerate(self.backends) if index in keep]
        if staying:
            stay = self.store.replace_backends(staying)
            assert stay == {backend.name for backend in staying}
            self.store.replace_backends(self.backends)
            for name in self.known_counters.keys() - stay:
                del self.known_counters[name]

    @invariant()
    def somebody_can_be_asked_unless_all_are_down_or_draining(self) -> None:
        for model in (None, *MODELS):
            candidates = [
                member
                for member in self.store.fleet.members
                if not member.draining and member.state is not BackendState.DOWN and member.serves(model)
            ]
            if any(member.state is not BackendState.HALF_OPEN for member in candidates):
                assert self.store.fleet.routable(model)
            # Half-open ones alone: in service, though each may be busy with its trial when others stand by.
            if candidates and all(member.in_flight.trials == 0 for member in candidates):
                assert self.store.fleet.routable(model)

    @invariant()
    def nobody_down_or_draining_is_asked(self) -> None:
        for member in self.store.fleet.routable(None):
            assert member.state is not BackendState.DOWN
            assert not member.draining

    @invariant()
    def a_half_open_backend_has_one_trial_at_a_time_while_others_are_in_service(self) -> None:
        for member in self.store.fleet.members:
            if member.state is BackendState.HALF_OPEN and not member.last_resort:
                assert member.admits() == (member.in_flight.trials == 0 and not member.draining)

    @invariant()
    def a_backend_that_stays_keeps_its_count(self) -> None:
        for member in self.store.fleet.members:
            assert self.known_counters.setdefault(member.name, member.in_flight) is member.in_flight
            held = sum(counter is member.in_flight for counter, _ in self.leases)
            assert member.in_flight.count == held

    def teardown(self) -> None:
        """From wherever the fleet is now, every backend comes back once its answers are good."""
        if not hasattr(self, "store"):
            return
        for backend in self.backends:
            self.now += self.policy.cooldown_seconds
            for _ in range(1 + self.policy.recovery_successes):
                self.store.report(backend, HealthEvent.PROBE_OK)
            health = self.store.health(backend.name)
            if health.state is not BackendState.HEALTHY:
                assert health.lost_through_requests
                for _ in range(self.policy.recovery_successes):
                    self.store.report(backend, HealthEvent.REQUEST_OK)
            assert self.store.health(backend.name).state is BackendState.HEALTHY
        assert set(self._states().values()) == {BackendState.HEALTHY}


TestFleetHealth = FleetHealth.TestCase
TestFleetHealth.settings = hypothesis_settings(max_examples=80, stateful_step_count=30, deadline=None)
