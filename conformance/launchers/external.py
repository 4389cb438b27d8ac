"""A router that somebody else started, known only by its address and by what its owner says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

from conformance.backend import Backend
from conformance.launchers.base import Launcher, RunningRouter, StartError, wait_ready
from conformance.launchers.prefix_router import PrefixRouter
from conformance.model import Capability
from conformance.profile import Profile, Strategy


class External(Launcher):
    """A target. settings: the profile that its owner says it runs with; other profiles do not apply.

    admin: host and port of prefix_router's admin interface, where there is one.
    """

    name: ClassVar[str] = "target"

    def __init__(
        self,
        host: str,
        port: int,
        *,
        admin: tuple[str, int] | None = None,
        pid: int | None = None,
        settings: Profile | None = None,
    ) -> None:
        self._host, self._port, self._admin, self._pid = host, port, admin, pid
        self._settings = settings or Profile()
        has: set[Capability] = set()
        if admin is not None:
            has |= {
                Capability.ADMIN,
                Capability.IN_FLIGHT,
                Capability.METRICS,
                Capability.DECISION_HEADERS,
            }
        if pid is not None:
            has.add(Capability.PROCESS)
        self._has = frozenset(has)

    def lacks(self, needs: frozenset[Capability], profile: Profile) -> str | None:
        """A profile applies when every setting that it asks for is one that the owner has stated."""
        for capability in sorted(needs - self._has, key=lambda need: need.name):
            return f"the suite was not given {capability.value}"
        for field, value in profile.asked_for.items():
            if getattr(self._settings, field) != value:
                return f"the case asks for {field}={value}, and the router was not started by the suite"
        return None

    def version(self) -> str:
        """Nobody has said."""
        return f"at {self._host}:{self._port}"

    async def start(self, profile: Profile, backends: Sequence[Backend]) -> RunningRouter:
        """Wait until it takes requests. Raises StartError."""
        host, port = self._admin or (self._host, 0)
        admin_port = port if self._admin else None
        router = RunningRouter(self, self._host, self._port, admin_port, host, self._pid)
        try:
            await wait_ready(router)
        except TimeoutError as error:
            raise StartError(f"{self._host}:{self._port} answered no request with 200") from error
        return router

    async def in_flight(self, router: RunningRouter) -> dict[str, int] | None:
        """As prefix_router tells them, where an admin interface was given."""
        return await PrefixRouter().in_flight(router)


def stated_profile(text: str) -> Profile:
    """Read `threshold=2,idle_timeout_seconds=1`. Raises ValueError."""
    known = {field.name for field in fields(Profile)}
    values: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if name not in known or not equals:
            raise ValueError(f"{part!r} is not one of {', '.join(sorted(known))} = a value")
        values[name] = _value(name, value)
    return replace(Profile(), **values)


def _value(name: str, text: str) -> object:
    if name == "strategy":
        return Strategy(text)
    if name in ("backend_address", "listen_host"):
        return text
    number = float(text)
    return int(number) if number.is_integer() else number
