"""Who a request is from, by its key."""

from __future__ import annotations

from hashlib import sha256

import pytest
from multidict import CIMultiDict

from prefix_router.proxy.clients import Clients, needs_key

CLIENTS = Clients(
    tuple(
        (sha256(key.encode()).digest(), name)
        for key, name in (("old", "alice"), ("new", "alice"), ("other", "bob"))
    )
)


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"authorization": "Bearer old"}, "alice"),
        ({"Authorization": "bearer  new "}, "alice"),
        ({"x-api-key": "other"}, "bob"),
        ({"api-key": "other"}, "bob"),
        ({"Authorization": "Bearer old", "x-api-key": "other"}, "alice"),
        ({"Authorization": "Bearer wrong", "x-api-key": "other"}, None),
        ({"Authorization": "Basic old"}, None),
        ({"Authorization": "old"}, None),
        ({"Authorization": "Bearer "}, None),
        ({"x-api-key": "\udcff"}, None),
        ({}, None),
    ],
)
def test_the_first_key_says_who_it_is(headers: dict[str, str], name: str | None) -> None:
    assert CLIENTS.name(CIMultiDict(headers)) == name


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/health", False),
        ("HEAD", "/ping", False),
        ("POST", "/health", True),
        ("GET", "/v1/models", True),
        ("POST", "/v1/chat/completions", True),
    ],
)
def test_only_questions_for_the_health_need_no_key(method: str, path: str, needed: bool) -> None:
    assert needs_key(method, path) is needed
