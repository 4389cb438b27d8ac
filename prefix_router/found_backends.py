"""From the settings to the sources of backends, and from what these find back to settings.

Found backends become entries of `backends`, so that everything behind knows only one kind: the settings that
are served are the configured ones with a longer list. Nothing here waits or fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from prefix_router.discovery.discovery import DiscoveryOptions
from prefix_router.discovery.dns import DnsOptions
from prefix_router.discovery.endpoint_slices import SliceOptions
from prefix_router.discovery.file import FileOptions
from prefix_router.discovery.kubernetes import SERVICE_LABEL, KubernetesOptions
from prefix_router.discovery.kubernetes_api import AccessOptions
from prefix_router.discovery.merge import Clash, merge
from prefix_router.discovery.source import Family, Found, FoundSet, SourceName, SourceOptions, Trouble
from prefix_router.routing.fleet import BackendName
from prefix_router.settings.discovery import DnsRecords, FoundDefaultSettings
from prefix_router.settings.model import BackendSettings, PrefixSettings, RoutingSettings, Settings
from prefix_router.settings.problems import SettingsError


@dataclass(frozen=True, slots=True)
class BackendListReader:
    """Reads a file with a list of backends. tokenizer: of the settings; backends with KV events need one."""

    tokenizer: str | None

    def __call__(self, path: str) -> FoundSet | Trouble:
        """Return the backends, or the first mistake with its line, and how many there are. Blocks."""
        from prefix_router.settings.backend_list import read_backend_list

        routing = RoutingSettings(prefix=PrefixSettings(tokenizer=self.tokenizer))
        try:
            return tuple(_found(backend, given) for backend, given in read_backend_list(path, routing))
        except SettingsError as error:
            first, *others = error.problems
            return Trouble(f"{first}; and {len(others)} more" if others else str(first))


def discovery_options_of(settings: Settings) -> DiscoveryOptions:
    """Return what is followed."""
    discovery = settings.discovery
    file, dns, kubernetes = discovery.file, discovery.dns, discovery.kubernetes
    path = discovery.defaults.path
    sources: dict[SourceName, SourceOptions] = {}
    if file.path is not None:
        sources[SourceName.FILE] = FileOptions(
            file.path, BackendListReader(settings.routing.prefix.tokenizer)
        )
    if dns.name is not None:
        sources[SourceName.DNS] = DnsOptions(
            dns.name,
            None if dns.type is DnsRecords.SRV else dns.port,
            scheme=dns.scheme.value,
            path=path,
            family=Family(dns.family.value),
            weights=dns.weights,
            resolvers=dns.resolvers,
            min_seconds=dns.min_seconds,
            max_seconds=dns.max_seconds,
        )
    selector = kubernetes.selector
    if kubernetes.service is not None:
        selector = f"{SERVICE_LABEL}={kubernetes.service}"
    if selector is not None:
        sources[SourceName.KUBERNETES] = KubernetesOptions(
            selector,
            SliceOptions(
                kubernetes.port,
                kubernetes.scheme.value,
                path,
                Family(kubernetes.family.value),
                kubernetes.models_label,
            ),
            AccessOptions(kubernetes.kubeconfig, kubernetes.context, kubernetes.namespace),
            watch_seconds=kubernetes.watch_seconds,
        )
    return DiscoveryOptions(
        sources,
        settle_seconds=discovery.settle_seconds,
        first_answer_seconds=discovery.first_answer_seconds,
        believe_empty_seconds=discovery.believe_empty_seconds,
    )


def with_found(settings: Settings, found: Mapping[SourceName, FoundSet]) -> tuple[Settings, frozenset[Clash]]:
    """Return the settings with everything that was found, and who had to be left out. O(backends)."""
    if not any(found.values()):
        return settings, frozenset()
    static = {backend.name: backend for backend in settings.backends}
    merged = merge({**found, SourceName.STATIC: [_found(backend) for backend in settings.backends]})
    backends = tuple(
        static[one.name]
        if source is SourceName.STATIC
        else _backend_settings(one, settings.discovery.defaults)
        for source, one in merged.backends
    )
    return structs.replace(settings, backends=backends), merged.clashes


def _backend_settings(found: Found, defaults: FoundDefaultSettings) -> BackendSettings:
    models = defaults.models if found.models is None else tuple(sorted(found.models))
    server_name = found.server_name or defaults.server_name
    return BackendSettings(
        url=found.url,
        name=found.name,
        weight=found.weight or defaults.weight,
        models=models,
        kv_events=found.kv_events,
        kv_events_replay=found.kv_events_replay,
        kv_events_ranks=found.kv_events_ranks,
        server_name=server_name if found.url.startswith("https://") else None,
        authorization=found.authorization or defaults.authorization,
    )


def _found(backend: BackendSettings, given: frozenset[str] = frozenset()) -> Found:
    return Found(
        BackendName(backend.name),
        backend.url,
        weight=backend.weight if "weight" in given else None,
        models=None if backend.models is None else frozenset(backend.models),
        server_name=backend.server_name,
        authorization=backend.authorization,
        kv_events=backend.kv_events,
        kv_events_replay=backend.kv_events_replay,
        kv_events_ranks=backend.kv_events_ranks,
    )
