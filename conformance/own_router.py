"""A router process of a case's own, for what can only be seen at a start: addresses, races, first looks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from conformance.context import Context
from conformance.launchers.base import CommandLauncher, RunningRouter, wait_ready
from conformance.model import CaseFailed, NotApplicable
from conformance.profile import Profile

STARTS_WITHIN_SECONDS = 12.0


@contextlib.asynccontextmanager
async def spawned(ctx: Context, profile: Profile) -> AsyncIterator[Context]:
    """Start another router for `ctx`'s backends, wait for nothing, and stop it at the end.

    Raises NotApplicable when the suite cannot start this router, or not with this profile.
    """
    launcher = ctx.router.launcher
    if not isinstance(launcher, CommandLauncher):
        raise NotApplicable("the suite did not start the router")
    if (reason := launcher.lacks(frozenset(), profile)) is not None:
        raise NotApplicable(reason)
    router: RunningRouter = await launcher.spawn(profile, ctx.backends)
    own = Context(router, ctx.backends, ctx.variant, profile)
    try:
        yield own
    finally:
        own.close()
        await router.stop()


@contextlib.asynccontextmanager
async def started(ctx: Context, profile: Profile) -> AsyncIterator[Context]:
    """As `spawned`, and wait until it takes requests; what the backends saw of that is forgotten.

    Raises CaseFailed when it does not come up.
    """
    async with spawned(ctx, profile) as own:
        try:
            await wait_ready(own.router, seconds=STARTS_WITHIN_SECONDS)
        except TimeoutError as error:
            process = own.router.process
            ended = process is not None and process.returncode is not None
            last = (own.router.log().strip().splitlines() or [""])[-1][:200]
            how = "ends" if ended else f"takes no request within {STARTS_WITHIN_SECONDS:g} s"
            raise CaseFailed(f"started with {profile.label} it {how}: {last}") from error
        for backend in ctx.backends:
            backend.exchanges.clear()
        yield own


async def exit_status(router: RunningRouter, *, seconds: float) -> int:
    """Wait for the end of the router's process and return its exit status. Raises CaseFailed."""
    if router.process is None:
        raise NotApplicable("the suite did not start the router")
    try:
        async with asyncio.timeout(seconds):
            return await router.process.wait()
    except TimeoutError as error:
        raise CaseFailed(f"the process has not ended after {seconds:g} s") from error
