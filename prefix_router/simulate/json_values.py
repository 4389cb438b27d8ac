"""A small JSON value that a JSON Schema accepts: what a stand-in says when it is held to one.

vLLM lets a grammar choose each next token, so its answer satisfies the schema whatever the model thinks. Here
the value is built: required properties only, the first of several choices, as few items as allowed but one
where that is free, dull words as text. So the answer is as short as it can be and not empty.

Pure, linear in the value. A schema that asks for what cannot be built here (a `pattern`, a reference to
another document, a required recursion without end) raises `InvalidRequestError`, as an unsupported schema
does in vLLM; the answer is never one that the schema refuses.
"""

from __future__ import annotations

import math
from typing import Any

from prefix_router.simulate.errors import InvalidRequestError

DEEPEST = 32
"""How deep a value may be nested."""

_WORDS = ("the way and the day", "old and new", "two men", "our car")


def conforming(schema: Any, seed: int = 0, root: Any = None, depth: int = 0) -> Any:
    """A value that `schema` accepts; equal seeds give equal values.

    root: the document that references point into; `schema` itself if None. Raises InvalidRequestError.
    """
    root = schema if root is None else root
    if depth > DEEPEST:
        raise InvalidRequestError("the schema has no end that can be reached", "response_format")
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise InvalidRequestError("a JSON schema must be an object", "response_format")
    if "$ref" in schema:
        return conforming(_resolve(schema["$ref"], root), seed, root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][seed % len(schema["enum"])]
    if schema.get("allOf"):
        return conforming(_merge(schema, root), seed, root, depth + 1)
    for several in ("anyOf", "oneOf"):
        if schema.get(several):
            return conforming(schema[several][0], seed, root, depth + 1)
    return _of_kind(_kind(schema), schema, seed, root, depth)


def _of_kind(kind: str, schema: dict[str, Any], seed: int, root: Any, depth: int) -> Any:
    match kind:
        case "object":
            known = schema.get("properties") or {}
            return {
                name: conforming(known.get(name, True), seed + at, root, depth + 1)
                for at, name in enumerate(schema.get("required") or ())
            }
        case "array":
            items = schema.get("items", True)
            few = max(int(schema.get("minItems") or 0), 0 if schema.get("maxItems") == 0 else 1)
            if depth >= DEEPEST // 2:  # A list of its own kind must end somewhere.
                few = int(schema.get("minItems") or 0)
            return [conforming(items, seed + at, root, depth + 1) for at in range(few)]
        case "string":
            return _text(schema, seed)
        case "integer" | "number":
            return _number(schema, seed, whole=kind == "integer")
        case "boolean":
            return seed % 2 == 0
        case "null":
            return None
    raise InvalidRequestError(f"the schema has an unknown type {kind!r}", "response_format")


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        kind = kind[0]
    if kind is None:
        kind = "array" if "items" in schema else "object"
    return str(kind)


def _text(schema: dict[str, Any], seed: int) -> str:
    for unsupported in ("pattern", "format"):
        if unsupported in schema:
            raise InvalidRequestError(f"text with a {unsupported} cannot be made here", "response_format")
    text = _WORDS[seed % len(_WORDS)]
    shortest = int(schema.get("minLength") or 0)
    longest = schema.get("maxLength")
    text = text * -(-shortest // len(text)) if shortest > len(text) else text
    return text[: max(shortest, 1)] if longest is not None and len(text) > longest else text


def _number(schema: dict[str, Any], seed: int, *, whole: bool) -> float:
    value: float
    step = schema.get("multipleOf") or (1 if whole else 0.5)
    lowest = schema.get("minimum", -math.inf)
    if "exclusiveMinimum" in schema:
        lowest = max(lowest, schema["exclusiveMinimum"] + step)
    highest = schema.get("maximum", math.inf)
    if "exclusiveMaximum" in schema:
        highest = min(highest, schema["exclusiveMaximum"] - step)
    value = math.ceil(max(seed % 100 * step, lowest) / step) * step
    if value > highest:
        value = math.floor(highest / step) * step
    if value < lowest:
        raise InvalidRequestError("no number satisfies the schema", "response_format")
    return value


def _merge(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """All parts of `allOf` in one schema: what they say about properties is joined, else the last wins."""
    merged = {name: value for name, value in schema.items() if name != "allOf"}
    for part in schema["allOf"]:
        part = _resolve(part["$ref"], root) if "$ref" in part else part
        properties = {**(merged.get("properties") or {}), **(part.get("properties") or {})}
        required = [*(merged.get("required") or ()), *(part.get("required") or ())]
        merged = {**merged, **part, "properties": properties, "required": required}
    if not merged["properties"]:
        del merged["properties"], merged["required"]
    return merged


def _resolve(reference: Any, root: Any) -> Any:
    """What `#/a/b` points at in `root`."""
    found = root
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise InvalidRequestError(f"the schema refers to {reference!r}, outside itself", "response_format")
    for step in reference[1:].split("/")[1:]:
        try:
            found = found[step.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError, IndexError):
            raise InvalidRequestError(
                f"the schema refers to {reference!r}, which is not there", None
            ) from None
    return found
