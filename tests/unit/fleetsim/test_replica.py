from __future__ import annotations

from prefix_router.engine.cost import PROFILES
from prefix_router.fleetsim.plan import FleetPlan
from prefix_router.fleetsim.replica import Replica, replica_name


def test_replicas_are_numbered() -> None:
    assert replica_name(3) == "replica-3"


def test_a_replica_has_the_engine_of_the_plan() -> None:
    profile = "llama-3.1-8b-h100"
    replica = Replica(replica_name(0), FleetPlan("random", profile=profile))
    assert replica.engine.profile is PROFILES[profile]
    assert replica.engine.total_blocks == PROFILES[profile].kv_tokens // 16
    assert Replica(replica_name(0), FleetPlan("random", kv_tokens=320)).engine.total_blocks == 20
