"""Backends from Kubernetes: the ready endpoints of a service, or of all that a label selector finds.

EndpointSlices are listed and watched (`list_watch`), read together (`endpoint_slices`) and reported. Needs
`get`, `list` and `watch` of endpointslices in the namespace, nothing else: no pods, no services.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

import msgspec

from prefix_router.discovery.endpoint_slices import EndpointSlice, PortError, SliceOptions, backends_in
from prefix_router.discovery.kubernetes_api import AccessOptions, KubernetesApi
from prefix_router.discovery.list_watch import FIRST_PAUSE_SECONDS, ListWatch, Watched
from prefix_router.discovery.source import FoundSet, Trouble

SERVICE_LABEL = "kubernetes.io/service-name"


SLICES = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """selector: of the labels of EndpointSlices. watch_seconds: how long one watch lasts."""

    selector: str
    slices: SliceOptions = field(default_factory=SliceOptions)
    access: AccessOptions = field(default_factory=AccessOptions)
    watch_seconds: float = 300
    first_pause_seconds: float = FIRST_PAUSE_SECONDS

    def source(self) -> KubernetesSource:
        """Make the source."""
        return KubernetesSource(self)


class KubernetesSource:
    """Says what the API server says. A `Source`."""

    def __init__(self, options: KubernetesOptions) -> None:
        self._options = options

    async def reports(self) -> AsyncGenerator[FoundSet | Trouble, None]:
        """List and watch for ever."""
        options = self._options
        watched = Watched(
            SLICES,
            decode=partial(msgspec.json.decode, type=EndpointSlice),
            label_selector=options.selector,
            watch_seconds=options.watch_seconds,
        )
        api = KubernetesApi(options.access)
        try:
            async with aclosing(ListWatch(api, watched, options.first_pause_seconds).states()) as states:
                async for state in states:
                    yield state if isinstance(state, Trouble) else _report(state.values(), options.slices)
        finally:
            await api.close()


def _report(slices: Iterable[EndpointSlice], options: SliceOptions) -> FoundSet | Trouble:
    try:
        return backends_in(slices, options)
    except PortError as error:
        return Trouble(str(error))
