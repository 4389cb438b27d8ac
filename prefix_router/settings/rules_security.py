"""Rules about TLS, credentials, proxies and origins. What a rule is: `settings.rules`.

The files of TLS are read and put together as the router will do it: a key that does not fit its certificate
is told here, with the line of the setting, and not by clients that cannot connect.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

from prefix_router.settings.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefix_router.settings.convert import Draft
    from prefix_router.settings.tls import BackendTlsSettings, ListenerTlsSettings


def listeners_usable(draft: Draft) -> Iterator[Violation]:
    """Certificate and key belong together, and clients are only judged in TLS."""
    for path, section in (("listen.tls", draft.settings.listen.tls), ("admin.tls", draft.settings.admin.tls)):
        certificate, key, client_ca = f"{path}.certificate", f"{path}.key", f"{path}.client_ca"
        yield from _pair(path, section)
        if section.certificate is None:
            if section.client_ca is not None:
                yield Violation((client_ca, certificate), "expected null without a certificate: plain HTTP")
        elif section.key is not None:
            from prefix_router.tls import ListenerFiles, TlsFileError, listener_tls

            try:
                listener_tls(ListenerFiles(section.certificate, section.key, section.client_ca))
            except TlsFileError as error:
                first = f"{path}.{error.name}"
                yield Violation((first, certificate, key, client_ca), str(error))


def backends_usable(draft: Draft) -> Iterator[Violation]:
    """The files towards backends can be used."""
    section, path = draft.settings.backend_tls, "backend_tls"
    yield from _pair(path, section)
    if section.ca is not None and not section.verify:
        yield Violation(
            (f"{path}.ca", f"{path}.verify"), "expected null with verify false: nobody is checked"
        )
    if (section.certificate is None) == (section.key is None) and (section.certificate or section.ca):
        from prefix_router.tls import BackendFiles, TlsFileError, backend_tls

        try:
            backend_tls(BackendFiles(section.ca, section.certificate, section.key, section.verify))
        except TlsFileError as error:
            names = dict.fromkeys((error.name, "ca", "certificate", "key"))
            yield Violation(tuple(f"{path}.{name}" for name in names), str(error))


def names_fit_urls(draft: Draft) -> Iterator[Violation]:
    """The name of a certificate stands at a backend that shows one, and is a name."""
    for backend, place in zip(draft.settings.backends, draft.backend_paths, strict=True):
        if backend.server_name is not None and not backend.url.startswith("https://"):
            message = "expected null with an http:// URL: there is no certificate to check"
            yield Violation((f"{place}.server_name", f"{place}.url"), message)
        if backend.server_name is not None and not _is_server_name(backend.server_name):
            message = f"expected a host name or an IP address, got {backend.server_name}"
            yield Violation((f"{place}.server_name",), message)


def proxies_are_networks(draft: Draft) -> Iterator[Violation]:
    """Each of the trusted proxies is an address or a network."""
    for at, network in enumerate(draft.settings.listen.trusted_proxies or ()):
        try:
            ip_network(network, strict=False)
        except ValueError:
            path = f"listen.trusted_proxies[{at}]"
            yield Violation((path,), f"expected an IP address or a network such as 10.0.0.0/8, got {network}")


def _is_server_name(name: str) -> bool:
    """Whether TLS takes it: no label is empty or longer than 63."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return not name.startswith(".")


def _pair(path: str, section: ListenerTlsSettings | BackendTlsSettings) -> Iterator[Violation]:
    """A certificate is of no use without its key."""
    certificate, key = f"{path}.certificate", f"{path}.key"
    if section.certificate is not None and section.key is None:
        yield Violation((certificate, key), f"needs {key}")
    if section.key is not None and section.certificate is None:
        yield Violation((key, certificate), f"needs {certificate}")


SECURITY_RULES = (listeners_usable, backends_usable, names_fit_urls, proxies_are_networks)
