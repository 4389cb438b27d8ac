"""What each setting accepts and means, read from the annotations and docstrings of the model.

The loader, the JSON Schema, `--help` and the tests all ask here, so that a range, a default or a
sentence is written once, in `settings.model`. Everything is derived on demand; nothing is kept.
A docstring paragraph that begins with the name of a setting and a colon describes that setting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from inspect import cleandoc
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, structs

from prefix_router.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

Annotation: TypeAlias = Any
"""A type annotation of the model, such as `Annotated[int, Meta(ge=1)] | None`."""


@dataclass(frozen=True, slots=True)
class Field:
    """One setting.

    path: dotted, with `[]` for an entry of a list: `backends[].url`. default: NODEFAULT when required.
    """

    path: str
    annotation: Annotation
    default: object
    description: str

    @property
    def facts(self) -> str:
        """Range and default in words: `Accepts a whole number from 0 to 65535; default 8000.`"""
        default = "required" if self.default is NODEFAULT else f"default {written(self.default)}"
        return f"Accepts {expectation(self.annotation)}; {default}."


def leaves(section: type[Struct] = Settings, prefix: str = "") -> Iterator[Field]:
    """All settings that hold a value of their own, and the lists of sections, in model order."""
    descriptions = descriptions_of(section)
    for field in structs.fields(section):
        path = prefix + field.name
        if (inner := section_of(field.type)) is not None:
            yield from leaves(inner, f"{path}.")
            continue
        yield Field(path, field.type, field.default, descriptions.get(field.name, ""))
        entry = item_of(field.type)
        if entry is not None and (inner := section_of(entry)) is not None:
            yield from leaves(inner, f"{path}[].")


def descriptions_of(section: type[Struct]) -> dict[str, str]:
    """The paragraphs of a section's docstring on one line each, by setting; "" is what stands before them."""
    names = {field.name for field in structs.fields(section)}
    paragraphs: dict[str, list[str]] = {"": []}
    current = ""
    for line in cleandoc(section.__doc__ or "").splitlines():
        name, colon, rest = line.partition(": ")
        if colon and name in names:
            current = name
            paragraphs[current] = [rest]
        elif line.strip():
            paragraphs[current].append(line.strip())
    return {name: " ".join(lines) for name, lines in paragraphs.items()}


def section_of(annotation: Annotation) -> type[Struct] | None:
    """The struct that `annotation` stands for, if it stands for one."""
    bare = _bare(annotation)
    return bare if isinstance(bare, type) and issubclass(bare, Struct) else None


def item_of(annotation: Annotation) -> Annotation | None:
    """The annotation of one entry when `annotation` is a list, whether it may be null or not."""
    bare = _bare(annotation)
    origin: Annotation = get_origin(bare)
    return get_args(bare)[0] if origin is tuple else None


def choices_of(annotation: Annotation) -> tuple[str, ...]:
    """The texts that a closed set accepts; empty for everything else."""
    bare = _bare(annotation)
    return tuple(member.value for member in bare) if isinstance(bare, type) and issubclass(bare, Enum) else ()


def _bare(annotation: Annotation) -> Annotation:
    """Take off `Annotated` and `| None`."""
    origin: Annotation = get_origin(annotation)
    if origin is Annotated:
        return _bare(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return _bare(next(part for part in get_args(annotation) if part is not type(None)))
    return annotation


def expectation(annotation: Annotation) -> str:
    """What a value must be, in words that complete "expected …"."""
    return _in_words(msgspec.inspect.type_info(annotation), {})


def _in_words(info: msgspec.inspect.Type, extra: dict[str, Any]) -> str:
    match info:
        case msgspec.inspect.Metadata(type=inner):
            return _in_words(inner, info.extra or {})
        case msgspec.inspect.UnionType(types=types):
            null_first = sorted(types, key=lambda part: not isinstance(part, msgspec.inspect.NoneType))
            return " or ".join(_in_words(part, extra) for part in null_first)
        case msgspec.inspect.NoneType():
            return "null"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case msgspec.inspect.FloatType(ge=low, le=high):
            return f"a number from {low} to {high}"
        case msgspec.inspect.EnumType(cls=cls):
            return f"one of {', '.join(member.value for member in cls)}"
        case msgspec.inspect.VarTupleType(min_length=least):
            return "a list" if not least else f"a list with at least {least} entry"
        case msgspec.inspect.StructType(fields=fields):
            required = " and ".join(field.name for field in fields if field.required)
            return f"a mapping with {required}" if required else "a mapping"
    return str(extra.get("expects", "text"))


def written(value: object) -> str:
    """`value` as YAML writes it on one line; texts that need no quotes get none."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Enum():
            return str(value.value)
        case tuple():
            return f"[{', '.join(written(item) for item in value)}]"
        case str() if re.fullmatch(r"[\w./][\w./:-]*", value) is None:
            return f'"{value}"'
    return str(value)
