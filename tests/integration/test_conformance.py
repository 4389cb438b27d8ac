"""The suite passes our router on quick cases, and fails a proxy for exactly what it does wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from conformance.launchers.external import External
from conformance.launchers.prefix_router import PrefixRouter
from conformance.model import Case, Verdict
from conformance.registry import all_cases, select
from conformance.runner import Runner
from tests.support.toy_proxy import Flaw, ToyProxy

QUICK = ["B1", "B4", "D1", "D2", "E1", "F3", "F10", "F15"]

FLAWS = {
    Flaw.KEEPS_HOST: "D1",
    Flaw.KEEPS_HOP_BY_HOP: "D2",
    Flaw.DROPS_AUTHORIZATION: "D9",
    Flaw.DEAF: "B1",
    Flaw.LEAKS: "A1",
    Flaw.DECREMENTS_TWICE: "A2",
    Flaw.RELEASES_EARLY: "A6",
    Flaw.BUFFERS: "F15",
    Flaw.LAUNDERS: "F5",
    Flaw.RETRIES_LATE: "F9",
    Flaw.STRIPS_CODING: "E1",
    Flaw.RELABELS: "F10",
    Flaw.STOPS_AT_DONE: "F2",
    Flaw.NEVER_RESENDS: "C4",
}


async def verdicts(flaw: Flaw | None, *only: str) -> dict[str, tuple[Verdict, str]]:
    """Run cases against the toy, whatever settings they ask for, and return what became of them."""
    runner = Runner(AnySettings("127.0.0.1", 0))
    await runner.start_backends()
    async with ToyProxy([backend.port for backend in runner.backends], flaw) as proxy:
        runner.launcher = AnySettings("127.0.0.1", proxy.port)
        results = await runner.run(one_variant_each(only))
    return {result.case.id: (result.verdict, result.evidence) for result in results}


def one_variant_each(only: Sequence[str]) -> list[Case]:
    """Some cases, each with its first variant: enough to tell whether it can fail."""
    return [replace(case, variants=case.variants[:1]) for case in select(all_cases(), only)]


class AnySettings(External):
    """The toy has no settings, and no interface to tell anything."""

    def lacks(self, needs: object, profile: object) -> str | None:
        return "no interface" if needs else None


async def test_our_router_passes_quick_cases() -> None:
    results = await Runner(PrefixRouter()).run(one_variant_each(QUICK))
    assert {result.case.id: result.evidence for result in results if result.verdict is not Verdict.PASS} == {}
    assert [result.case.id for result in results] == QUICK


async def test_the_toy_passes_when_it_does_nothing_wrong() -> None:
    results = await verdicts(None, *sorted(set(FLAWS.values())))
    assert {name: text for name, (verdict, text) in results.items() if verdict is not Verdict.PASS} == {}


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: flaw.name)
async def test_a_flaw_fails_its_case(flaw: Flaw) -> None:
    case_id = FLAWS[flaw]
    results = await verdicts(flaw, case_id)
    assert results[case_id][0] is Verdict.FAIL, results[case_id][1]
