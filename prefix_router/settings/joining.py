"""The section `joining` of the settings."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from msgspec import Meta, Struct


class WarmUpName(Enum):
    """What a backend that joins must have shown before it takes traffic."""

    OFF = "off"
    HEALTH = "health"
    GENERATE = "generate"


class JoiningSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a backend that joins a running fleet, by a reload or by discovery, must have shown first.

    warm_up: off sends it requests at once, health when its health path has answered 2xx, generate when it has
        also generated one token. Set generate where new replicas start slowly; health for pooling models.
    timeout_seconds: Seconds after which a backend that joined takes traffic anyway, with a warning in the
        log. Raise it when replicas are announced long before they have loaded their model.
    """

    warm_up: WarmUpName = WarmUpName.OFF
    timeout_seconds: Annotated[float, Meta(ge=0.01, le=86_400)] = 120
