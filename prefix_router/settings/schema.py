"""The JSON Schema (draft 2020-12) of the configuration file, for editors and for checks in CI.

Made from the same structs as the loader, so it accepts what the loader accepts, with three things added
that the structs do not say: a `${NAME}` may stand where a number or a word is expected, a section whose
keys are all commented out is null, and each description carries range and default. Rules that look at
several settings are the loader's alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from prefix_router.settings.fields import descriptions_of, item_of, leaves, section_of
from prefix_router.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Struct

Schema: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_VARIABLE: Schema = {
    "description": "An environment variable: ${NAME} or ${NAME:-default}.",
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
}


def json_schema() -> Schema:
    """Build the schema. A new object each time."""
    _, definitions = msgspec.json.schema_components([Settings], ref_template="#/$defs/{name}")
    facts = {leaf.path.replace("[]", ""): leaf.facts for leaf in leaves()}
    sections = {
        section.__name__: _section(section, path, definitions, facts)
        for section, path in _sections(Settings, "")
    }
    root = {**sections.pop(Settings.__name__), "title": "prefix-router", "type": "object"}
    return {"$schema": DIALECT, **root, "$defs": {**sections, "Variable": {**_VARIABLE}}}


def json_schema_text() -> str:
    """The schema as it stands in `config/prefix-router.schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _sections(section: type[Struct], path: str) -> Iterator[tuple[type[Struct], str]]:
    """A section and all sections in it, each with its dotted path."""
    yield section, path
    for field in msgspec.structs.fields(section):
        inner = section_of(field.type) or section_of(item_of(field.type))
        if inner is not None:
            yield from _sections(inner, f"{path}.{field.name}".removeprefix("."))


def _section(
    section: type[Struct], path: str, definitions: dict[str, Schema], facts: dict[str, str]
) -> Schema:
    """The schema of one section at a dotted path, from the one that msgspec makes of it."""
    generated = definitions[section.__name__]
    texts = descriptions_of(section)
    properties: dict[str, Schema] = {}
    for name, value in generated["properties"].items():
        place = f"{path}.{name}".removeprefix(".")
        if place in facts:
            description = f"{texts[name]} {facts[place]}"
            properties[name] = {"description": description, **_value(value, definitions)}
        else:
            properties[name] = {"$ref": value["$ref"]}
    required = generated["required"]
    return {
        "description": texts[""],
        "type": "object" if required else ["object", "null"],
        "properties": properties,
        "additionalProperties": generated["additionalProperties"],
        **({"required": required} if required else {}),
    }


def _value(value: Schema, definitions: dict[str, Schema]) -> Schema:
    """The schema of one value, with closed sets written out and `${NAME}` as an alternative."""
    value = {**value}  # a section that stands at two places is asked for twice
    reference = value.pop("$ref", None)
    if reference is not None:
        value = {"enum": definitions[reference.rpartition("/")[2]]["enum"], **value}
    is_free_text = value.get("type") == "string" and "pattern" not in value
    if is_free_text:
        return value
    if value.get("type") == "array":
        default = {"default": list(value["default"])} if "default" in value else {}  # JSON knows no tuple
        return {**_list(value, definitions), **default}
    default = {"default": value.pop("default")} if "default" in value else {}
    alternatives = value["anyOf"] if value.keys() == {"anyOf"} else [value]
    alternatives = [_list(alternative, definitions) for alternative in alternatives]
    return {"anyOf": [*alternatives, {"$ref": "#/$defs/Variable"}], **default}


def _list(value: Schema, definitions: dict[str, Schema]) -> Schema:
    """The schema of a list with `${NAME}` as an alternative for each entry; any other schema as it is."""
    items = value.get("items")
    if items is None or "$ref" in items:
        return value
    return {**value, "items": _value(items, definitions)}
