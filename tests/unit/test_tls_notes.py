from __future__ import annotations

import ssl

import pytest

from prefix_router.settings.model import AdminSettings, BackendSettings, Settings
from prefix_router.settings.tls import BackendTlsSettings
from prefix_router.tls import Tls
from prefix_router.tls_notes import SOON_SECONDS, note

NOW = 1_800_000_000.0
SETTINGS = Settings(backends=(BackendSettings(url="http://h:1", name="a"),))


def ending(at: float | None) -> Tls:
    return Tls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), b"", at)


def test_what_ends_soon_or_has_ended_is_told_and_all_ends_are_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_use = {
        "listen.tls": ending(NOW + SOON_SECONDS / 2),
        "admin.tls": ending(NOW - 1),
        "backend_tls": ending(NOW + SOON_SECONDS + 1),
    }
    assert note(SETTINGS, in_use, NOW) == {name: tls.ends_at for name, tls in in_use.items()}
    assert [record.getMessage() for record in caplog.records] == [
        "listen.tls.certificate expires in 7.0 days: renew the file, then reload",
        "admin.tls.certificate has expired: renew the file, then reload",
    ]


def test_without_certificates_there_is_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    assert note(SETTINGS, {"listen.tls": None, "backend_tls": ending(None)}, NOW) == {}
    assert not caplog.records


def test_a_check_that_is_off_is_told(caplog: pytest.LogCaptureFixture) -> None:
    note(Settings(backend_tls=BackendTlsSettings(verify=False)), {}, NOW)
    assert "backend_tls.verify is false" in caplog.text


def test_a_token_in_plain_text_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    note(Settings(admin=AdminSettings(token_sha256="0" * 64)), {"admin.tls": None}, NOW)
    assert "plain text" in caplog.text
