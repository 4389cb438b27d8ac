"""Rules about discovery: what must be there together, and what must be installed. See `settings.rules`."""

from __future__ import annotations

from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING

from prefix_router.settings.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefix_router.settings.convert import Draft


def dns_usable(draft: Draft) -> Iterator[Violation]:
    """The name servers are addresses, the pauses have an order, and somebody can ask."""
    dns, path = draft.settings.discovery.dns, "discovery.dns"
    for at, resolver in enumerate(dns.resolvers):
        if not _is_resolver(resolver):
            place = f"{path}.resolvers[{at}]"
            yield Violation((place,), f"expected an IP address, with :port if it is not 53, got {resolver}")
    if dns.min_seconds > dns.max_seconds:
        message = f"expected at most max_seconds ({dns.max_seconds:g}), got {dns.min_seconds:g}"
        yield Violation((f"{path}.min_seconds", f"{path}.max_seconds"), message)
    if dns.name is not None and find_spec("aiodns") is None:
        message = "needs an extra that is not installed: pip install prefix_router[dns]"
        yield Violation((f"{path}.name",), message)


def kubernetes_usable(draft: Draft) -> Iterator[Violation]:
    """Endpoints are found in one way, and somebody can ask for them."""
    kubernetes, path = draft.settings.discovery.kubernetes, "discovery.kubernetes"
    service, selector = f"{path}.service", f"{path}.selector"
    if kubernetes.service is not None and kubernetes.selector is not None:
        yield Violation((selector, service), "expected null with a service: it is one or the other")
    if kubernetes.context is not None and kubernetes.kubeconfig is None:
        yield Violation((f"{path}.context", f"{path}.kubeconfig"), "expected null without a kubeconfig")
    wanted = service if kubernetes.service is not None else selector
    if (kubernetes.service or kubernetes.selector) is not None and find_spec("kubernetes_asyncio") is None:
        message = "needs an extra that is not installed: pip install prefix_router[kubernetes]"
        yield Violation((wanted,), message)


def _is_resolver(text: str) -> bool:
    address, port = text, "53"
    if text.startswith("["):
        address, _, port = text[1:].partition("]:")
    elif text.count(":") == 1:
        address, port = text.split(":")
    try:
        ip_address(address)
    except ValueError:
        return False
    return port.isdecimal() and 0 < int(port) < 65_536


DISCOVERY_RULES = (dns_usable, kubernetes_usable)
