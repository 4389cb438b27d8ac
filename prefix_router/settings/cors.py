"""The section about browsers that call the data port from a page of another origin."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from prefix_router.settings.patterns import FIELD_NAME, FIELD_NAME_PATTERN, ORIGIN, ORIGIN_PATTERN


class CorsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which web pages may call the data port from a browser. Off without origins: backends answer then.

    allow_origins: Origins of pages that may read answers, such as https://app.example.org; "*" is every
        page. Cookies are never allowed. Set it when a page talks to the router without a server in between.
    allow_headers: Names of request headers that such a page may send; "*" is every one that it asks for.
        Narrow it to make a page's mistakes show early.
    expose_headers: Names of response headers that such a page may read.
    max_age_seconds: Seconds that a browser may keep the answer to its preflight. Lower it while you try out.
    """

    allow_origins: tuple[Annotated[str, Meta(pattern=ORIGIN_PATTERN, extra=ORIGIN)], ...] = ()
    allow_headers: tuple[Annotated[str, Meta(pattern=FIELD_NAME_PATTERN, extra=FIELD_NAME)], ...] = ("*",)
    expose_headers: tuple[Annotated[str, Meta(pattern=FIELD_NAME_PATTERN, extra=FIELD_NAME)], ...] = (
        "x-request-id",
        "x-prefix-router-backend",
        "x-prefix-router-reason",
        "retry-after",
    )
    max_age_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 600
