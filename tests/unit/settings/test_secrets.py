"""No secret of a configuration is shown anywhere. Walks all settings, those that come later included."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from msgspec import structs

from prefix_router.build import backends_of
from prefix_router.settings.fields import Field, item_of, leaves, section_of
from prefix_router.settings.load import load_text
from prefix_router.settings.model import BackendSettings, Settings
from prefix_router.settings.problems import SettingsError
from prefix_router.settings.reload import compare
from prefix_router.settings.schema import json_schema_text
from prefix_router.settings.secrets import MASK, is_secret, shown
from prefix_router.settings.summary import summary

SECRETS = [leaf for leaf in leaves() if is_secret(leaf.annotation)]
BACKENDS = (BackendSettings(url="http://h:1", name="a"),)
SENTINEL = "deadbeef" * 8
"""64 hex digits: right for a hash, and for a header."""

LOOKS_SECRET = re.compile(r"authorization|password|secret|token_sha|sha256|api_key|credential|bearer")


def values_of(leaf: Field) -> dict[str, Any]:
    """A document in which one secret is set."""
    document: dict[str, Any] = {"backends": [{"url": "http://h:1", "name": "a"}]}
    *sections, name = leaf.path.split(".")
    inner: Any = document
    cls: Any = Settings
    for section in sections:
        field = next(field for field in structs.fields(cls) if field.name == section.removesuffix("[]"))
        is_list = section.endswith("[]")
        cls = section_of(item_of(field.type) if is_list else field.type)
        given = {field.name: "some-name" for field in structs.fields(cls) if field.required}
        found = inner.setdefault(field.name, [given] if is_list else given)
        inner = found[0] if is_list else found
    inner[name] = [SENTINEL] if item_of(leaf.annotation) is not None else SENTINEL
    return document


def settings_with(leaf: Field) -> Settings:
    """Settings with this secret set, converted without rules: what else it needs is not the question."""
    return msgspec.convert(values_of(leaf), Settings)


def test_there_are_secrets() -> None:
    assert {"backends[].authorization", "admin.token_sha256"} <= {leaf.path for leaf in SECRETS}


@pytest.mark.parametrize("leaf", [leaf for leaf in leaves() if LOOKS_SECRET.search(leaf.path)], ids=str)
def test_what_is_called_like_a_secret_is_marked_as_one(leaf: Field) -> None:
    holds_settings = section_of(leaf.annotation) is not None
    assert holds_settings or is_secret(leaf.annotation)


@pytest.mark.parametrize("leaf", SECRETS, ids=lambda leaf: leaf.path)
def test_a_secret_is_shown_nowhere(leaf: Field) -> None:
    secret, plain = settings_with(leaf), Settings(backends=BACKENDS)
    document = json.dumps(shown(secret))
    assert SENTINEL not in document
    assert MASK in document
    for running, wanted in ((plain, secret), (secret, plain)):
        report = compare(running, wanted)[1]
        changes = [*report.applied, *report.needs_restart]
        assert changes
        told = json.dumps(report.document()) + "".join(map(str, changes))
        assert SENTINEL not in told
    assert SENTINEL not in summary(secret)
    assert SENTINEL not in json_schema_text()
    assert SENTINEL not in repr(backends_of(secret))


def test_a_backend_that_joins_or_leaves_takes_its_secret_with_it() -> None:
    one = Settings(backends=(*BACKENDS, BackendSettings(url="http://i:1", name="b", authorization=SENTINEL)))
    two = Settings(backends=BACKENDS)
    for running, wanted in ((one, two), (two, one)):
        report = compare(running, wanted)[1]
        assert [change.path for change in report.applied] == ["backends[b]"]
        assert SENTINEL not in json.dumps(report.document()) + str(report.applied[0])


def test_a_mistake_in_a_secret_is_told_without_it() -> None:
    text = f'backends: [{{url: "http://h:1", authorization: "{SENTINEL}\\n"}}]\n'
    text += f"admin: {{token_sha256: {SENTINEL}0}}"
    with pytest.raises(SettingsError) as failure:
        load_text(text, "x.yaml", {})
    told = str(failure.value)
    assert SENTINEL not in told
    assert told.count("what it is now is not shown") == 2


def test_what_is_not_set_is_still_null_and_all_else_as_it_is() -> None:
    document = shown(Settings(backends=BACKENDS))
    assert document["backends"][0]["authorization"] is None
    assert document["admin"]["token_sha256"] is None
    assert document == json.loads(msgspec.json.encode(Settings(backends=BACKENDS)))
    assert list(document) == [field.name for field in structs.fields(Settings)]
