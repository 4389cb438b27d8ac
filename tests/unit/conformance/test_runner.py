"""How variants are judged, against a router that is nothing but the backend itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from conformance.backend import Backend
from conformance.context import Context
from conformance.exchange import Exchange
from conformance.launchers.base import Launcher, RunningRouter, StartError
from conformance.model import (
    Capability,
    Case,
    CaseFailed,
    CaseResult,
    NotApplicable,
    Priority,
    Run,
    Variant,
    Verdict,
)
from conformance.profile import Profile
from conformance.runner import Runner


class Straight(Launcher):
    """The "router" is the first backend."""

    name = "straight"
    capabilities = frozenset({Capability.FRESH})
    unsupported: ClassVar[dict[str, str]] = {"threshold": "there is nothing to set"}

    def __init__(self) -> None:
        self.starts: list[Profile] = []

    def version(self) -> str:
        return "0"

    async def start(self, profile: Profile, backends: Sequence[Backend]) -> RunningRouter:
        self.starts.append(profile)
        return RunningRouter(self, "127.0.0.1", backends[0].port)


async def judged(run: Run, **fields: object) -> CaseResult:
    values = {"id": "A1", "priority": Priority.P0, "title": "t", "expectation": "e.", "run": run}
    values |= {"profile": Profile(backend_count=1), **fields}
    case = Case(**values)  # type: ignore[arg-type]
    (result,) = await Runner(Straight()).run([case])
    return result


async def test_a_case_that_returns_passes_with_its_evidence() -> None:
    async def run(ctx: Context) -> str:
        answer = await ctx.ask()
        return f"{answer.status}"

    result = await judged(run)
    assert (result.verdict, result.evidence) == (Verdict.PASS, "200")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (CaseFailed("seen"), Verdict.FAIL),
        (NotApplicable("no such thing"), Verdict.NOT_APPLICABLE),
        (RuntimeError("a bug of the case"), Verdict.ERROR),
    ],
)
async def test_what_a_case_raises_is_its_verdict(error: Exception, verdict: Verdict) -> None:
    async def run(_: Context) -> str:
        raise error

    result = await judged(run)
    assert result.verdict is verdict
    assert str(error) in result.evidence


async def test_a_case_that_does_not_end_fails() -> None:
    async def run(ctx: Context) -> str:
        async def silent(exchange: Exchange) -> None:
            await exchange.forever()

        ctx.script_all(silent)
        await (await ctx.start()).head()
        return "never"

    assert (await judged(run, timeout_seconds=0.2)).verdict is Verdict.FAIL


async def test_a_broken_backend_script_is_an_error_not_a_verdict_on_the_router() -> None:
    async def run(ctx: Context) -> str:
        async def broken(exchange: Exchange) -> None:
            await exchange.respond(200, b"{}")
            raise KeyError("oops")

        ctx.script_all(broken)
        await ctx.ask()
        await ctx.wait_until(lambda: ctx.backends[0].script_errors, "the script broken")
        return "fine"

    result = await judged(run)
    assert result.verdict is Verdict.ERROR
    assert "oops" in result.evidence


async def test_a_capability_or_setting_that_is_missing_makes_a_case_not_applicable() -> None:
    async def run(_: Context) -> str:
        raise AssertionError

    lacking = await judged(run, needs=frozenset({Capability.ADMIN}))
    unset = await judged(run, profile=Profile(threshold=3))
    assert {lacking.verdict, unset.verdict} == {Verdict.NOT_APPLICABLE}
    assert "there is nothing to set" in unset.evidence


async def test_one_failed_variant_fails_the_case_and_is_named() -> None:
    async def run(ctx: Context) -> str:
        if ctx.variant.option == "bad":
            raise CaseFailed("it broke")
        return "fine"

    result = await judged(run, variants=(Variant(option="good"), Variant(option="bad")))
    assert result.verdict is Verdict.FAIL
    assert result.evidence == "[chat whole bad] it broke"


async def test_cases_of_one_profile_share_a_router_and_a_fresh_case_gets_its_own() -> None:
    async def run(ctx: Context) -> str:
        return "fine"

    def made(case_id: str, *, fresh: bool = False, profile: Profile | None = None) -> Case:
        return Case(case_id, Priority.P1, "t", "e.", run, profile=profile or Profile(), fresh=fresh)

    launcher = Straight()
    cases = [made("A1"), made("A2"), made("A3", fresh=True), made("A4", profile=Profile(max_attempts=2))]
    results = await Runner(launcher).run(cases)
    assert [result.case.id for result in results] == ["A1", "A2", "A3", "A4"]
    assert launcher.starts == [Profile(), Profile(), Profile(max_attempts=2)]


async def test_a_router_that_does_not_start_is_an_error_with_its_log() -> None:
    class Dead(Straight):
        async def start(self, profile: Profile, backends: Sequence[Backend]) -> RunningRouter:
            raise StartError("address in use")

    async def run(_: Context) -> str:
        raise AssertionError

    (result,) = await Runner(Dead()).run([Case("A1", Priority.P0, "t", "e.", run)])
    assert (result.verdict, result.evidence) == (Verdict.ERROR, "address in use")
