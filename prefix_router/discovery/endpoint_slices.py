"""From EndpointSlices to backends. Pure.

One service has several slices: up to a hundred endpoints each, one kind of addresses each, and while an
endpoint moves from one to another it is in both. All of them are read together, each time. O(endpoints).

Who is in: ready (a condition that is absent means ready, says the API) and not terminating. `ready` alone
would not do: a service with publishNotReadyAddresses calls everybody ready. An endpoint that is in two slices
is in when it is ready in one of them.

A pod is one backend, however many addresses it has, and is called by its name: a pod of a StatefulSet keeps
its keys when it comes back under another address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from prefix_router.discovery.source import Family, Found, authority_of, url_of
from prefix_router.routing.fleet import BackendName

_KINDS = {"IPv4": Family.IPV4, "IPv6": Family.IPV6}


class Conditions(msgspec.Struct):
    """None for what is not known."""

    ready: bool | None = None
    terminating: bool | None = None


class TargetRef(msgspec.Struct):
    """What stands behind an endpoint."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(msgspec.Struct, rename="camel"):
    """One address of one pod. addresses: all lead to the same; consumers take the first."""

    addresses: list[str]
    conditions: Conditions = msgspec.field(default_factory=Conditions)
    target_ref: TargetRef | None = None

    @property
    def usable(self) -> bool:
        """Whether it should get requests."""
        ready = self.conditions.ready is None or self.conditions.ready
        return ready and not self.conditions.terminating and bool(self.addresses)


class Port(msgspec.Struct):
    """One port of all endpoints of a slice."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Labelled(msgspec.Struct):
    """Name and labels of a slice."""

    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class EndpointSlice(msgspec.Struct, rename="camel"):
    """What is needed of a slice."""

    metadata: Labelled
    address_type: str = "IPv4"
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


@dataclass(frozen=True, slots=True)
class SliceOptions:
    """port: number, or name of a port of the service; None for the only one there is.

    models_label: label or annotation of a slice with the names of the models, separated by commas.
    """

    port: int | str | None = None
    scheme: str = "http"
    path: str = ""
    family: Family = Family.AUTO
    models_label: str | None = None


class PortError(Exception):
    """A slice does not say which port."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    family: Family
    address: str
    port: int
    models: frozenset[str] | None


def backends_in(slices: Iterable[EndpointSlice], options: SliceOptions) -> tuple[Found, ...]:
    """Return the backends, sorted by name. Raises PortError for a slice with some and no clear port."""
    pods: dict[str, list[_Candidate]] = {}
    names: dict[str, str] = {}
    for piece in sorted(slices, key=lambda piece: piece.metadata.name):
        family = _KINDS.get(piece.address_type)
        if family is None or options.family not in (Family.AUTO, Family.BOTH, family):
            continue
        usable = [endpoint for endpoint in piece.endpoints or () if endpoint.usable]
        if not usable:
            continue
        port, models = _port(piece, options.port), _models(piece, options.models_label)
        for endpoint in usable:
            target, address = endpoint.target_ref, endpoint.addresses[0]
            is_pod = target is not None and target.kind == "Pod" and target.name and target.uid
            identity = target.uid if is_pod and target is not None else authority_of(address, port)
            names[identity] = target.name if is_pod and target is not None else identity
            pods.setdefault(identity, []).append(_Candidate(family, address, port, models))
    found: list[Found] = []
    for identity, candidates in pods.items():
        chosen = sorted(set(candidates), key=lambda one: (one.family is Family.IPV6, one.address, one.port))
        for at, one in enumerate(chosen if options.family is Family.BOTH else chosen[:1]):
            name = names[identity] if at == 0 else authority_of(one.address, one.port)
            url = url_of(options.scheme, one.address, one.port, options.path)
            found.append(Found(BackendName(name), url, models=one.models))
    return tuple(sorted(found, key=lambda one: (one.name, one.url)))


def _port(piece: EndpointSlice, wanted: int | str | None) -> int:
    if isinstance(wanted, int):
        return wanted
    ports = [port for port in piece.ports or () if port.port is not None and port.protocol in (None, "TCP")]
    fitting = ports if wanted is None else [port for port in ports if port.name == wanted]
    if len(fitting) == 1 and fitting[0].port is not None:
        return fitting[0].port
    there = ", ".join(f"{port.name or 'without a name'} ({port.port})" for port in ports) or "none"
    asked = "one port" if wanted is None else f"a port {wanted}"
    raise PortError(f"EndpointSlice {piece.metadata.name}: expected {asked}, there is {there}")


def _models(piece: EndpointSlice, label: str | None) -> frozenset[str] | None:
    if label is None:
        return None
    metadata = piece.metadata
    text = (metadata.annotations or {}).get(label) or (metadata.labels or {}).get(label) or ""
    return frozenset(name.strip() for name in text.split(",") if name.strip()) or None
