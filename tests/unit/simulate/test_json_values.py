from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.json_values import conforming

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name", "children"],
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "string", "minLength": 60},
        {"type": "string", "maxLength": 3},
        {"type": "string", "minLength": 2, "maxLength": 2},
        {"type": "integer", "minimum": 7, "maximum": 9},
        {"type": "integer", "exclusiveMinimum": 100, "multipleOf": 7},
        {"type": "integer", "maximum": -3},
        {"type": "number", "exclusiveMaximum": 0.5},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["string", "null"]},
        {"type": "array", "items": {"type": "integer"}, "minItems": 3},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 0},
        {"enum": ["red", "green", 5]},
        {"const": {"a": [1]}},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            ]
        },
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "free"]},
        {"type": "object"},
        {},
        TREE,
    ],
)
def test_the_value_satisfies_its_schema(schema: dict[str, Any]) -> None:
    for seed in range(12):
        jsonschema.validate(conforming(schema, seed), schema)


def test_a_value_is_as_short_as_it_can_be_but_not_empty() -> None:
    schema = {
        "properties": {"a": {"type": "integer"}, "b": {"items": {"type": "null"}}, "c": {"type": "null"}},
        "required": ["a", "b"],
    }
    assert conforming(schema, 5) == {"a": 5, "b": [None]}


def test_equal_seeds_give_equal_values_and_others_other_ones() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert conforming(schema, 1) == conforming(schema, 1) != conforming(schema, 2)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^a$"},
        {"type": "string", "format": "date"},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "whatever"},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/$defs/absent"},
        {
            "$defs": {
                "loop": {"type": "object", "properties": {"a": {"$ref": "#/$defs/loop"}}, "required": ["a"]}
            },
            "$ref": "#/$defs/loop",
        },
        False,
        "object",
    ],
)
def test_what_cannot_be_built_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidRequestError):
        conforming(schema)
