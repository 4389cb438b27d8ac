"""Runs cases: starts a router for each profile, keeps what one case broke from the next, judges.

Cases of one profile share one router process, in the order of the table. After a case that disturbs (or
that failed), every backend must get work again within SETTLE_SECONDS, or the router is replaced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from uuid import uuid4

from conformance.backend import Backend
from conformance.client import ClientConnection
from conformance.context import Context
from conformance.endpoints import Endpoint
from conformance.launchers.base import Launcher, RunningRouter, StartError
from conformance.model import Case, CaseFailed, CaseResult, NotApplicable, Variant, VariantResult, Verdict
from conformance.profile import Profile
from conformance.registry import place
from conformance.scripts import well_behaved
from conformance.wire import BrokenError, ClosedError, request_bytes

SETTLE_SECONDS = 4.0
"""How long a router may need after a fault until it uses every backend again."""

FIRST_LOOK_SECONDS = 1.0
"""How long a new router is watched for which backends it uses."""

Progress = Callable[[CaseResult], None]


def make_backend(name: str) -> Backend:
    """Return a backend that behaves like a good vLLM by default."""
    backend = Backend(name, _nothing)
    backend.default = well_behaved(backend)
    backend.reset()
    return backend


class Runner:
    """Runs cases against one kind of router. ports: of the backends; 0 takes a free one."""

    def __init__(self, launcher: Launcher, ports: Sequence[int] = (0, 0, 0)) -> None:
        self.launcher = launcher
        self.backends = [make_backend(chr(ord("a") + at)) for at in range(len(ports))]
        for backend, port in zip(self.backends, ports, strict=True):
            backend.port = port
        self._router: RunningRouter | None = None
        self._suspect = False

    async def run(self, cases: Sequence[Case], progress: Progress = lambda _: None) -> list[CaseResult]:
        """Run `cases` and return their results in the order of the table. Raises StartError."""
        results: list[CaseResult] = []

        def done(result: CaseResult) -> None:
            results.append(result)
            progress(result)

        try:
            await self.start_backends()
            for profile, group in groupby(
                sorted(cases, key=lambda case: case.profile.label), lambda case: case.profile
            ):
                for case in group:
                    done(await self._run_case(case, profile))
                await self._stop_router()
        finally:
            await self._stop_router()
            for backend in self.backends:
                await backend.refuse()
        return sorted(results, key=lambda result: place(result.case.id))

    async def start_backends(self) -> None:
        """Listen. Raises OSError when a port is taken."""
        for backend in self.backends:
            await backend.start()

    async def _run_case(self, case: Case, profile: Profile) -> CaseResult:
        reason = self.launcher.lacks(case.needs, profile)
        if reason is None and profile.backend_count > len(self.backends):
            reason = f"the case asks for {profile.backend_count} backends"
        if reason is not None:
            skipped = VariantResult("all", Verdict.NOT_APPLICABLE, reason, 0.0)
            return CaseResult(case, (skipped,))
        if case.fresh:
            await self._stop_router()
        results = []
        for variant in case.variants:
            results.append(await self._run_variant(case, variant, profile))
            if case.fresh:
                await self._stop_router()
        if any(found.verdict in (Verdict.FAIL, Verdict.ERROR) for found in results):
            await self._stop_router()  # what broke here must not colour the next case
        return CaseResult(case, tuple(results))

    async def _run_variant(self, case: Case, variant: Variant, profile: Profile) -> VariantResult:
        began = time.monotonic()

        def result(verdict: Verdict, evidence: str) -> VariantResult:
            return VariantResult(variant.name, verdict, evidence, time.monotonic() - began)

        try:
            router, backends = await self._ready_router(profile)
        except StartError as error:
            return result(Verdict.ERROR, str(error))
        context = Context(router, backends, variant, profile)
        self._suspect = case.disturbs
        try:
            async with asyncio.timeout(case.timeout_seconds):
                if not await self._carries(context):
                    raise NotApplicable(f"the router does not carry {variant.endpoint.path}")
                evidence = await case.run(context)
            broken = [text for backend in backends for text in backend.script_errors]
            if broken:
                return result(Verdict.ERROR, f"a backend script broke: {broken[0]}")
            return result(Verdict.PASS, evidence)
        except NotApplicable as error:
            return result(Verdict.NOT_APPLICABLE, str(error))
        except CaseFailed as error:
            self._suspect = True
            return result(Verdict.FAIL, str(error))
        except TimeoutError:
            self._suspect = True
            return result(Verdict.FAIL, f"not over within {case.timeout_seconds:g} s")
        except Exception as error:  # noqa: BLE001  (one broken case must not end the run)
            self._suspect = True
            return result(Verdict.ERROR, f"{type(error).__name__}: {error}")
        finally:
            context.close()

    async def _carries(self, context: Context) -> bool:
        """Whether the router has a route for the variant's endpoint; asked once for each process."""
        known = context.router.carries
        endpoint = context.endpoint
        if endpoint not in known:
            answer = await context.ask(request_bytes(endpoint.path, endpoint.request("carried?")))
            refused = answer.status in (404, 405, 501) and context.work_count == 0
            known[endpoint] = not refused
            self._reset_backends()
        return known[endpoint]

    async def _ready_router(self, profile: Profile) -> tuple[RunningRouter, list[Backend]]:
        backends = self.backends[: profile.backend_count]
        for backend in self.backends:
            await backend.start()
        self._reset_backends()
        if self._router is not None:
            ended = self._router.process is not None and self._router.process.returncode is not None
            if ended or (self._suspect and not await _settles(self._router, backends)):
                await self._stop_router()
        if self._router is None:
            self._router = await self.launcher.start(profile, backends)
            await _settles(self._router, backends)
        self._suspect = False
        self._reset_backends()
        return self._router, backends

    def _reset_backends(self) -> None:
        for backend in self.backends:
            backend.reset()

    async def _stop_router(self) -> None:
        if self._router is not None:
            router, self._router = self._router, None
            await router.stop()


async def _settles(router: RunningRouter, backends: Sequence[Backend]) -> bool:
    """Send different requests until each backend has had one that got some when the router was new.

    False when that takes too long. A policy that leaves a backend alone is thereby not mistaken for a fault.
    """
    new = router.uses is None
    wanted = frozenset(backend.name for backend in backends) if router.uses is None else router.uses
    deadline = time.monotonic() + (FIRST_LOOK_SECONDS if new else SETTLE_SECONDS)
    while time.monotonic() < deadline:
        ok = await _one_request(router)
        seen = frozenset(backend.name for backend in backends if backend.exchanges)
        if ok and seen >= wanted:
            router.uses = seen
            return True
        await asyncio.sleep(0.005 if ok else 0.05)
    if new:
        router.uses = frozenset(backend.name for backend in backends if backend.exchanges)
    return new


async def _one_request(router: RunningRouter) -> bool:
    """Send a request with a prompt of its own; whether it was answered with 200."""
    request = request_bytes(Endpoint.CHAT.path, Endpoint.CHAT.request(f"{uuid4().hex} settle"))
    try:
        async with asyncio.timeout(2):
            async with await ClientConnection.open(router.host, router.port) as connection:
                await connection.send(request)
                return (await connection.answer()).status == 200
    except (OSError, ClosedError, BrokenError, TimeoutError):
        return False


async def _nothing(exchange: object) -> None:
    """Stand in until a backend has its own default."""
