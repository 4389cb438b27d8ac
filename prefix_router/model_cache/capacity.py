"""Whether a model fits, and what has to leave for it. Pure.

The rule: what is pinned or in use never leaves; of the rest the least recently used goes first, and only as
much as it takes. Several models may share a file, so that what is freed is counted by file.
O(models² × files).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenant:
    """A stored model. last_used: Unix time in seconds. blobs: size in bytes by content address."""

    name: str
    revision: str
    last_used: float
    kept: bool
    """Pinned, or in use."""
    blobs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Space:
    """All in bytes.

    capacity: what the cache may hold, None for no limit. used: what it holds. reserved: promised to pulls
    and not written yet. disk_free: of the file system. keep_free: what must stay free there.
    """

    capacity: int | None
    used: int
    reserved: int
    disk_free: int
    keep_free: int

    @property
    def available(self) -> int:
        """Bytes that a new pull may have; less than 0 when more is promised than there is."""
        on_disk = self.disk_free - self.keep_free - self.reserved
        if self.capacity is None:
            return on_disk
        return min(on_disk, self.capacity - self.used - self.reserved)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which models leave, in this order, how many bytes are then available, and whether that is enough."""

    evicted: tuple[Tenant, ...]
    available: int
    fits: bool


def plan(space: Space, tenants: Collection[Tenant], needed: int, wanted: Collection[str] = ()) -> Plan:
    """Say what has to leave for `needed` bytes. wanted: blobs that the new model shares, which must stay."""
    going: list[Tenant] = []

    def available(leaving: list[Tenant]) -> int:
        return space.available + _freed(tenants, leaving, wanted)

    for tenant in sorted(tenants, key=lambda tenant: (tenant.last_used, tenant.name, tenant.revision)):
        if available(going) >= needed:
            break
        if not tenant.kept:
            going.append(tenant)
    if available(going) >= needed:
        # Without those whose going frees nothing that is needed: an old model whose files others share, say.
        for tenant in list(going):
            others = [other for other in going if other is not tenant]
            if available(others) >= needed:
                going = others
    left = available(going)
    return Plan(tuple(going), left, left >= needed)


def _freed(tenants: Collection[Tenant], leaving: list[Tenant], wanted: Collection[str]) -> int:
    """Bytes of the files that only those who leave have, and nobody wants."""
    staying = set(wanted).union(*(tenant.blobs for tenant in tenants if tenant not in leaving))
    gone = {blob: size for tenant in leaving for blob, size in tenant.blobs.items() if blob not in staying}
    return sum(gone.values())
