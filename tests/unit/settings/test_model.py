from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import NODEFAULT, Struct, convert, structs

from prefix_router.routing import ring
from prefix_router.settings.fields import Field, descriptions_of, item_of, leaves, section_of
from prefix_router.settings.load import load
from prefix_router.settings.model import BackendSettings, Settings

REFERENCE = Path(__file__).parents[3] / "config" / "prefix-router.yaml"
LEAVES = list(leaves())


def sections(section: type[Struct] = Settings) -> list[type[Struct]]:
    found = [section]
    for field in structs.fields(section):
        inner = section_of(field.type) or section_of(item_of(field.type))
        if inner is not None:
            found += sections(inner)
    return found


@pytest.fixture(scope="module")
def document() -> Any:
    """The reference file as plain values."""
    return yaml.safe_load(REFERENCE.read_text())


@pytest.fixture(scope="module")
def comments() -> str:
    """All comments of the reference file as one text, so that line breaks do not matter."""
    lines = (line.strip() for line in REFERENCE.read_text().splitlines())
    return " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))


def value_in(document: Any, path: str) -> object:
    for name in path.replace("[]", ".0").split("."):
        document = document[int(name) if name.isdigit() else name]
    return document


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.path)
def test_every_setting_is_described(leaf: Field) -> None:
    assert len(leaf.description) > 40
    assert leaf.description.endswith(".")


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.__name__)
def test_every_section_is_described_and_strict_and_immutable(section: type[Struct]) -> None:
    assert descriptions_of(section)[""].endswith(".")
    config = section.__struct_config__
    assert config.frozen
    assert config.forbid_unknown_fields


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.path)
def test_every_default_is_a_value_that_may_be_configured(leaf: Field) -> None:
    if leaf.default is not NODEFAULT:
        value = getattr(leaf.default, "value", leaf.default)
        assert convert(value, leaf.annotation) == leaf.default


def test_the_reference_file_holds_the_defaults_and_two_backends() -> None:
    settings = load(REFERENCE, environ={})
    assert len(settings.backends) == 2
    assert structs.replace(settings, backends=()) == Settings()


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.path)
def test_the_reference_file_has_every_setting(leaf: Field, document: Any) -> None:
    if leaf.path.startswith("clients[]"):
        assert document["clients"] == []  # an entry in force would shut everybody else out
        return
    value_in(document, leaf.path)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.path)
def test_the_reference_file_documents_every_setting_in_the_words_of_the_model(
    leaf: Field, comments: str
) -> None:
    assert f"{leaf.description} {leaf.facts}" in comments


@pytest.mark.parametrize(
    "section",
    [section for section in sections() if section not in {Settings, BackendSettings}],
    ids=lambda section: section.__name__,
)
def test_the_reference_file_documents_every_section(section: type[Struct], comments: str) -> None:
    assert descriptions_of(section)[""] in comments


def test_an_upstream_connection_is_given_up_before_vllm_closes_it() -> None:
    vllm_keepalive_seconds = 5
    assert Settings().timeouts.upstream_keepalive_seconds < vllm_keepalive_seconds


def test_the_default_ring_is_the_one_that_was_measured() -> None:
    assert Settings().routing.ring.virtual_nodes == ring.DEFAULT_VIRTUAL_NODES
