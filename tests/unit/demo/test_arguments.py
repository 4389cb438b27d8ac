from __future__ import annotations

import argparse

import pytest

from prefix_router.demo.arguments import DemoPlan, add_arguments, read_arguments


def parse(*flags: str) -> DemoPlan:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return read_arguments(parser.parse_args(flags))


def test_the_default_is_the_published_benchmark_on_seven_replicas() -> None:
    plan = parse()
    assert plan.replicas == 7
    assert plan.profile == "llama-3.1-70b-h100-tp8"
    assert (plan.workload.prefix_tokens, plan.workload.uses) == (8000, 5)
    assert (plan.once, plan.as_json) == (False, False)


def test_every_flag_reaches_the_plan() -> None:
    plan = parse(
        *("--once", "--json", "--replicas", "3", "--profile", "llama-3.1-8b-h100", "--time-scale", "20"),
        *("--port", "1", "--admin-port", "2", "--prefixes", "4", "--requests-per-second", "5", "--seed", "6"),
    )
    assert (plan.once, plan.as_json, plan.replicas, plan.profile) == (True, True, 3, "llama-3.1-8b-h100")
    assert (plan.time_scale, plan.port, plan.admin_port) == (20.0, 1, 2)
    workload = plan.workload
    assert (workload.prefixes, workload.requests_per_second, workload.seed) == (4, 5.0, 6)


def test_a_demo_that_stays_up_has_ports_one_can_remember() -> None:
    assert (parse().port, parse().admin_port) == (8000, 9090)


def test_a_demo_that_does_not_stay_up_takes_any_free_port() -> None:
    assert (parse("--once").port, parse("--once").admin_port) == (0, 0)


@pytest.mark.parametrize("flags", [("--replicas", "0"), ("--time-scale", "0"), ("--prefixes", "x")])
def test_a_flag_that_makes_no_sense_is_refused(flags: tuple[str, str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        parse(*flags)
