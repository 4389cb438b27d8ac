"""Settings that must not be shown, and how the others are shown without them.

A setting is marked once, in its annotation (`patterns.SECRET`); whatever shows settings to people or sends
them over the admin listener asks here. O(settings).
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, structs

MASK: Final = "(secret)"
"""What stands in place of a secret that is set; one that is not set is still null."""


def is_secret(annotation: Any) -> bool:
    """Whether values of this annotation, or any part of them, are marked as secret."""
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        inner, *notes = get_args(annotation)
        marked = any(isinstance(note, Meta) and (note.extra or {}).get("secret", False) for note in notes)
        return marked or is_secret(inner)
    if origin in (Union, UnionType, tuple):
        return any(is_secret(part) for part in get_args(annotation))
    return False


def shown(section: Struct) -> dict[str, Any]:
    """Return a section as plain values, secrets masked."""
    return {
        field.name: shown_value(field.type, getattr(section, field.name)) for field in structs.fields(section)
    }


def shown_value(annotation: Any, value: Any) -> Any:
    """Return one value of a setting as plain values, masked when the setting is a secret."""
    if value is not None and is_secret(annotation):
        return MASK
    if isinstance(value, Struct):
        return shown(value)
    if isinstance(value, tuple):
        return [shown(item) if isinstance(item, Struct) else msgspec.to_builtins(item) for item in value]
    return msgspec.to_builtins(value)
