"""What an operator is told about TLS when it starts and reloads: what ends, what is not checked.

A renewed file does nothing until somebody reloads, so the end that counts is the one of the certificate in
use. It is in the log here, and as a metric for alerts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from prefix_router.settings.model import Settings
from prefix_router.tls import Tls

logger = logging.getLogger(__name__)

SOON_SECONDS = 14 * 86_400.0


def note(settings: Settings, in_use: Mapping[str, Tls | None], now: float) -> dict[str, float]:
    """Log what an operator must not overlook; return when each certificate ends, in Unix seconds.

    in_use: what is spoken, by section of the settings. now: Unix seconds.
    """
    if not settings.backend_tls.verify:
        logger.warning(
            "backend_tls.verify is false: whoever answers at a backend's address is believed to be it"
        )
    if settings.admin.token_sha256 is not None and in_use.get("admin.tls") is None:
        logger.info("the admin token is sent in plain text: set admin.tls where others can listen")
    ends = {
        section: tls.ends_at for section, tls in in_use.items() if tls is not None and tls.ends_at is not None
    }
    for section, end in ends.items():
        if end <= now:
            logger.error("%s.certificate has expired: renew the file, then reload", section)
        elif end - now < SOON_SECONDS:
            days = (end - now) / 86_400
            logger.warning("%s.certificate expires in %.1f days: renew the file, then reload", section, days)
    return ends
