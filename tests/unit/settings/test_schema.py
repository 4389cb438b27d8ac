from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from prefix_router.settings.fields import Field, choices_of, item_of, leaves
from prefix_router.settings.load import load_text
from prefix_router.settings.problems import SettingsError
from prefix_router.settings.schema import json_schema, json_schema_text

CONFIG = Path(__file__).parents[3] / "config"
SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

CANDIDATES = [
    None, True, False, -1, 0, 0.5, 1, 2, 1024, 100_000, 10**12, 0.001, 1.5, "", "word", "two words", "/path",
    "8000", "${NAME:-1}", [], ["a"], {}, {"a": 1},
]  # fmt: skip
"""Values of all kinds, right for some settings and wrong for others."""

NOT_COMPARED = {
    "backends",  # an empty list is right when flags add backends
    "clients",  # an entry has two required settings
    "clients[].key_sha256",  # no candidate is a hash
    "backends[].url",  # the loader alone knows what a URL is
    "routing.prefix.tokenizer",  # the loader looks for the file
    *(f"{section}.{file}" for section in ("listen.tls", "admin.tls") for file in ("certificate", "key")),
    *("listen.tls.client_ca", "admin.tls.client_ca"),
    *(f"backend_tls.{file}" for file in ("ca", "certificate", "key")),
    "backends[].server_name",  # only with a URL of https://
    "discovery.dns.min_seconds",  # not above the other one
    "discovery.dns.max_seconds",
    "discovery.kubernetes.context",  # only with a kubeconfig
}


def document_with(path: str, value: object) -> dict[str, Any]:
    document: dict[str, Any] = {"backends": [{"url": "http://h:1"}]}
    if path.startswith("clients[]"):
        document["clients"] = [{"name": "x", "key_sha256": ["0" * 64]}]
    *sections, name = path.replace("[]", ".0").split(".")
    inner: Any = document
    for section in sections:
        inner = inner[0] if section == "0" else inner.setdefault(section, {})
    inner[name] = value
    return document


def loads(document: dict[str, Any]) -> bool:
    try:
        load_text(json.dumps(document), "x.yaml", {})
    except SettingsError:
        return False
    return True


def test_the_published_schema_is_the_one_of_the_model() -> None:
    published = (CONFIG / "prefix-router.schema.json").read_text()
    assert published == json_schema_text(), (
        "the model has changed: prefix-router schema > config/prefix-router.schema.json"
    )


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_reference_file_fits_the_schema() -> None:
    VALIDATOR.validate(yaml.safe_load((CONFIG / "prefix-router.yaml").read_text()))


@pytest.mark.parametrize(
    "leaf", [leaf for leaf in leaves() if leaf.path not in NOT_COMPARED], ids=lambda leaf: leaf.path
)
def test_the_schema_accepts_what_the_loader_accepts(leaf: Field) -> None:
    candidates = [*CANDIDATES, *choices_of(leaf.annotation)]
    documents = [document_with(leaf.path, value) for value in candidates if value != "${NAME:-1}"]
    verdicts = {json.dumps(document): VALIDATOR.is_valid(document) for document in documents}
    assert verdicts == {json.dumps(document): loads(document) for document in documents}
    assert True in verdicts.values()
    assert False in verdicts.values()


@pytest.mark.parametrize(
    "leaf",
    [leaf for leaf in leaves() if leaf.path not in {"backends", "clients"}],
    ids=lambda leaf: leaf.path,
)
def test_a_variable_may_stand_for_any_value(leaf: Field) -> None:
    variable = "${NAME:-1}"
    value = variable if item_of(leaf.annotation) is None else [variable]
    VALIDATOR.validate(document_with(leaf.path, value))


@pytest.mark.parametrize("leaf", list(leaves()), ids=lambda leaf: leaf.path)
def test_every_setting_carries_description_range_and_default(leaf: Field) -> None:
    node = SCHEMA
    for name in leaf.path.split("."):
        node = node["properties"][name.removesuffix("[]")]
        if name.endswith("[]"):
            node = node["items"]
        if "$ref" in node:
            node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    assert node["description"] == f"{leaf.description} {leaf.facts}"
    if "required" not in leaf.facts:
        assert "default" in node


@pytest.mark.parametrize(
    "document",
    [
        {"unknown": 1},
        {"listen": {"unknown": 1}},
        {"backends": [{"url": "h:1", "unknown": 1}]},
        {"backends": [{"name": "a"}]},
        {"backends": ["h:1"]},
        {"backends": [None]},
        {"listen": 5},
    ],
)
def test_what_is_unknown_or_missing_is_refused(document: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(document)
    assert not loads(document)


@pytest.mark.parametrize("section", ["listen", "routing", "health"])
def test_a_section_may_be_empty(section: str) -> None:
    document = document_with(section, None)
    assert VALIDATOR.is_valid(document)
    assert loads(document)


def test_a_schema_is_not_shared() -> None:
    json_schema()["properties"].clear()
    assert json_schema()["properties"]
