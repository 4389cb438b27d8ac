"""The section `discovery` of the settings: where backends are found besides `backends`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from msgspec import Meta, Struct

from prefix_router.settings.patterns import (
    CREDENTIAL,
    CREDENTIAL_PATTERN,
    DNS_NAME,
    DNS_NAME_PATTERN,
    FILE,
    HOST,
    HOST_PATTERN,
    LABEL,
    LABEL_PATTERN,
    MODEL,
    OBJECT_NAME,
    OBJECT_NAME_PATTERN,
    PATH_PREFIX,
    PATH_PREFIX_PATTERN,
    PORT_NAME,
    PORT_NAME_PATTERN,
    RESOLVER,
    RESOLVER_PATTERN,
    SELECTOR,
    SELECTOR_PATTERN,
)


class Scheme(Enum):
    """What found backends speak."""

    HTTP = "http"
    HTTPS = "https"


class DnsRecords(Enum):
    """Which records are asked for."""

    ADDRESS = "address"
    SRV = "srv"


class AddressFamily(Enum):
    """Which address of a replica that has several is used."""

    AUTO = "auto"
    IPV4 = "ipv4"
    IPV6 = "ipv6"
    BOTH = "both"


class FileDiscoverySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Backends from a file that something else writes.

    path: File with a list of backends, in YAML or JSON, with the keys of backends[]; null reads none. It is
        read again whenever it has changed. Set it when a script or a template knows the replicas, or to mount
        them from a ConfigMap.
    """

    path: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None


class DnsDiscoverySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Backends from DNS: every address of a name, or every target of its SRV records.

    name: Complete name that is asked for, without search domains, such as vllm.serving.svc.cluster.local;
        null asks for none. Needs the extra prefix_router[dns]. Set it for a headless service, or for a name
        that your own registry answers for.
    type: address asks for addresses, and `port` goes with each; srv asks for SRV records, which name host and
        port of each backend. Set srv where there are such records: a backend then has a name that outlives
        its address, and keeps its keys.
    port: Port of each address. With type srv it has no say.
    scheme: What the backends speak. With type srv and https a certificate must be for the name of the target.
    family: Which address of a host is used. auto takes IPv4, and IPv6 where there is no other; both makes a
        backend of each: set it only where no replica has both kinds, else it is two backends.
    weights: Whether the weights of SRV records are shares of the ring, from 1 to 100. Leave it false on
        Kubernetes, where they follow the number of pods.
    resolvers: Name servers that are asked instead of the system's, each an IP address, with a port if it is
        not 53. Set it when a registry has a name server of its own.
    min_seconds: Least seconds between two questions, however short the answer may be kept, and the first
        pause after a failure. Raise it when the name server has too much to do.
    max_seconds: Most seconds between two questions, however long the answer may be kept, and the longest
        pause after failures. Lower it when changes must show sooner than their TTL says.
    """

    name: Annotated[str, Meta(pattern=DNS_NAME_PATTERN, extra=DNS_NAME)] | None = None
    type: DnsRecords = DnsRecords.ADDRESS
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8000
    scheme: Scheme = Scheme.HTTP
    family: AddressFamily = AddressFamily.AUTO
    weights: bool = False
    resolvers: tuple[Annotated[str, Meta(pattern=RESOLVER_PATTERN, extra=RESOLVER)], ...] = ()
    min_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 5
    max_seconds: Annotated[float, Meta(ge=0.1, le=86_400)] = 60


class KubernetesDiscoverySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Backends from Kubernetes: the ready endpoints of a service.

    service: Name of the service whose endpoints are the backends; null follows none. Needs the extra
        prefix_router[kubernetes], and the right to list and watch endpointslices. The service may have a
        cluster IP or none: it is not asked, only its endpoints are.
    selector: Label selector of EndpointSlices, such as app=vllm, in place of `service`: they have the labels
        of their service. Set it when several services make one fleet.
    namespace: Namespace of the service; null is the router's own, or that of the kubeconfig's context.
    port: Port of the endpoints, as a number or as the name that the service gives it; null is the only one
        that there is. Set it when the service has several.
    scheme: What the backends speak; https checks a certificate as backend_tls says.
    family: Which address of a pod is used. auto takes IPv4, and IPv6 where there is no other; both makes a
        backend of each, which is wrong for pods that have both.
    models_label: Label or annotation of the EndpointSlice that holds the names of its models, separated by
        commas; null asks each backend for its /v1/models. A label of the service is also one of its slices.
    kubeconfig: Path of a kubeconfig; null logs in as the service account of the pod that the router runs in.
        Set it when the router runs outside of the cluster.
    context: Context of the kubeconfig; null is its current one.
    watch_seconds: Seconds after which a watch is begun anew, and about as long a connection that died
        silently goes unnoticed. Lower it when something between router and API server forgets connections.
    """

    service: Annotated[str, Meta(pattern=OBJECT_NAME_PATTERN, extra=OBJECT_NAME)] | None = None
    selector: Annotated[str, Meta(pattern=SELECTOR_PATTERN, extra=SELECTOR)] | None = None
    namespace: Annotated[str, Meta(pattern=OBJECT_NAME_PATTERN, extra=OBJECT_NAME)] | None = None
    port: (
        Annotated[int, Meta(ge=1, le=65_535)]
        | Annotated[str, Meta(pattern=PORT_NAME_PATTERN, extra=PORT_NAME)]
        | None
    ) = None
    scheme: Scheme = Scheme.HTTP
    family: AddressFamily = AddressFamily.AUTO
    models_label: Annotated[str, Meta(pattern=LABEL_PATTERN, extra=LABEL)] | None = None
    kubeconfig: Annotated[str, Meta(min_length=1, extra=FILE)] | None = None
    context: Annotated[str, Meta(min_length=1, extra={"expects": "the name of a context"})] | None = None
    watch_seconds: Annotated[float, Meta(ge=1, le=3600)] = 300


class FoundDefaultSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a found backend has where its source does not say: the settings of backends[] for all of them.

    weight: Shares of the ring. Change it when there are others in `backends` that are larger or smaller.
    models: Names of the models and adapters that a found backend serves; null asks its /v1/models. Set it
        when that endpoint is missing, needs a login or lists too much.
    path: Prefix of all paths at the backends, after their address; empty for none. Backends of a file say it
        in their URL. Set it when a gateway in each replica wants one.
    server_name: Name that the certificates of found https:// backends must have; null is the host of the URL.
        An SRV target always has its own. Set it when addresses are found and all have one certificate.
    authorization: What the router sends found backends as Authorization, in place of what the client sent;
        null passes the client's on. Set it to "Bearer ${VLLM_API_KEY}" when they run with --api-key. It is
        shown nowhere, and whoever can add a backend gets it.
    """

    weight: Annotated[int, Meta(ge=1, le=100)] = 1
    models: (
        Annotated[tuple[Annotated[str, Meta(min_length=1, extra=MODEL)], ...], Meta(min_length=1)] | None
    ) = None
    path: Annotated[str, Meta(pattern=PATH_PREFIX_PATTERN, extra=PATH_PREFIX)] = ""
    server_name: Annotated[str, Meta(pattern=HOST_PATTERN, extra=HOST)] | None = None
    authorization: Annotated[str, Meta(pattern=CREDENTIAL_PATTERN, extra=CREDENTIAL)] | None = None


class DiscoverySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where backends are found besides `backends`. All sources may be used at once; docs/discovery.md.

    settle_seconds: Seconds that changes are collected before they are applied as one. Raise it when replicas
        come and go in bursts.
    first_answer_seconds: Seconds after the start for which /readyz waits for a source that has not been heard
        yet. Lower it when there are backends enough without that source.
    believe_empty_seconds: Seconds for which a source that knew backends must say that there are none before
        it is believed; its last ones stay until then. 0 believes it at once. A file is never believed. Lower
        it where addresses that are given up soon belong to something else.
    """

    settle_seconds: Annotated[float, Meta(ge=0, le=60)] = 0.25
    first_answer_seconds: Annotated[float, Meta(ge=0, le=3600)] = 30
    believe_empty_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 300
    file: FileDiscoverySettings = FileDiscoverySettings()
    dns: DnsDiscoverySettings = DnsDiscoverySettings()
    kubernetes: KubernetesDiscoverySettings = KubernetesDiscoverySettings()
    defaults: FoundDefaultSettings = FoundDefaultSettings()

    @property
    def on(self) -> bool:
        """Whether there is a source."""
        kubernetes = self.kubernetes
        return any((self.file.path, self.dns.name, kubernetes.service, kubernetes.selector))
