"""A configuration document as a tree of nodes that know where they were written.

`parse` reads YAML into `Mapping`, `Sequence`, `Scalar` and, for what has no value, `Unusable`. It keeps
lines, completes environment variables, and records mistakes in the node they belong to instead of
stopping at them; only text that is not YAML at all stops it. PyYAML's own composer does the grammar;
nothing is ever constructed but null, true, false, numbers and text. Aliases, tags of one's own and deep
nesting are refused: a configuration needs none of them, and they are what YAML bombs are made of.
O(length of the text).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import yaml

from prefix_router.settings.problems import Origin, Problem, SettingsError
from prefix_router.settings.substitution import SubstitutionError, substitute

if TYPE_CHECKING:
    from collections.abc import Mapping as AbstractMapping

PlainValue: TypeAlias = str | int | float | bool | None

MAX_DEPTH = 32
"""Levels of nesting; the settings themselves use four."""

_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value.

    written: the text it has in its source, after substitution. quoted: whether the source marks it as
    text. typed: whether the source can tell a number from a text at all; a command line cannot.
    variables: the environment variables it was completed from.
    """

    origin: Origin
    value: PlainValue
    written: str
    quoted: bool = False
    typed: bool = True
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    origin: Origin
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a mapping and where its key stands."""

    key: Origin
    node: Node


@dataclass(frozen=True, slots=True)
class Mapping:
    """Named values. `repeated` are keys that were given again, with the place of the later one."""

    origin: Origin
    entries: AbstractMapping[str, Entry] = field(default_factory=dict)
    repeated: tuple[tuple[str, Origin], ...] = ()


@dataclass(frozen=True, slots=True)
class Unusable:
    """Something that has no value, and why."""

    origin: Origin
    message: str


Node: TypeAlias = Scalar | Sequence | Mapping | Unusable


def parse(text: str, source: str, environ: AbstractMapping[str, str]) -> Node | None:
    """Read one YAML document; None when it holds nothing but comments.

    Raises SettingsError when `text` is not YAML.
    """
    try:
        loader = _Composer(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"character U+{int(error.character):04X} is not allowed"
        raise SettingsError([Problem(source, line, "", message)]) from None
    except yaml.MarkedYAMLError as error:
        raise SettingsError([_syntax_problem(error, text, source)]) from None
    return None if root is None else _Converter(source, environ).node(root)


class _RefusedError(yaml.MarkedYAMLError):
    """Valid YAML that a configuration may not use."""


class _Composer(yaml.SafeLoader):
    """PyYAML's composer without aliases and without bottomless nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            self._refuse("aliases (*name) are not supported: write the value out")
        if self.depth == MAX_DEPTH:
            self._refuse(f"nested more than {MAX_DEPTH} levels deep")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def _refuse(self, why: str) -> NoReturn:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        raise _RefusedError(problem=why, problem_mark=event.start_mark)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, source: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = None if mark is None else mark.line + 1
    what = " ".join(str(part) for part in (error.context, error.problem) if part)
    message = what if isinstance(error, _RefusedError) else f"not valid YAML: {what}"
    if mark is not None:
        message += f" (column {mark.column + 1})"
        written = text.splitlines()[mark.line : mark.line + 1]
        if written and "${" in written[0]:
            message += "; inside { } and [ ] a ${...} must stand in quotes"
    return Problem(source, line, "", message)


class _Converter:
    """Turns PyYAML's nodes into ours."""

    def __init__(self, source: str, environ: AbstractMapping[str, str]) -> None:
        self._source = source
        self._environ = environ

    def node(self, node: yaml.Node) -> Node:
        origin = self._origin(node)
        match node:
            case yaml.ScalarNode():
                return self._scalar(node, origin)
            case yaml.SequenceNode(tag=tag, value=items) if tag == f"{_TAG}seq":
                return Sequence(origin, tuple(self.node(item) for item in items))
            case yaml.MappingNode(tag=tag, value=pairs) if tag == f"{_TAG}map":
                return self._mapping(pairs, origin)
        return Unusable(origin, _no_tag(node))

    def _origin(self, node: yaml.Node) -> Origin:
        return Origin(self._source, node.start_mark.line + 1)

    def _mapping(self, pairs: list[tuple[yaml.Node, yaml.Node]], origin: Origin) -> Mapping:
        entries: dict[str, Entry] = {}
        repeated: list[tuple[str, Origin]] = []
        for key_node, value_node in pairs:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            place = self._origin(key_node)
            if key in entries:
                repeated.append((key, place))
            else:
                entries[key] = Entry(place, self.node(value_node))
        return Mapping(origin, entries, tuple(repeated))

    def _scalar(self, node: yaml.ScalarNode, origin: Origin) -> Scalar | Unusable:
        quoted = bool(node.style)
        text, tag = node.value, node.tag
        variables: tuple[str, ...] = ()
        if "${" in text:
            try:
                completed = substitute(text, self._environ)
            except SubstitutionError as error:
                return Unusable(origin, str(error))
            text, variables = completed.text, completed.variables
            if not quoted:
                text = text.strip()
                tag = plain_tag(text)
        try:
            value = _value(text, tag)
        except _ForeignTagError:
            return Unusable(origin, _no_tag(node))
        except (ValueError, KeyError, IndexError):
            return Unusable(origin, f"{text!r:.60} cannot be read as {tag.removeprefix(_TAG)}")
        return Scalar(origin, value, text, quoted, variables=variables)


def plain_tag(text: str) -> str:
    """The YAML tag that `text` has when it is written without quotes."""
    resolver = yaml.resolver.Resolver()
    return str(resolver.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]


def plain_value(text: str) -> PlainValue:
    """The value that `text` has when it is written without quotes."""
    try:
        return _value(text, plain_tag(text))
    except ValueError:
        return text


class _ForeignTagError(Exception):
    """A tag that asks for something other than a plain value."""


def _value(text: str, tag: str) -> PlainValue:
    """Build a plain value. Raises ValueError, KeyError or IndexError when text and tag do not agree."""
    node = yaml.ScalarNode(tag, text)
    construct = yaml.constructor.SafeConstructor()
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return bool(construct.construct_yaml_bool(node))
        case "int":
            return int(construct.construct_yaml_int(node))
        case "float":
            return float(construct.construct_yaml_float(node))
        case "str" | "timestamp" | "value" | "merge":
            return text
    raise _ForeignTagError


def _no_tag(node: yaml.Node) -> str:
    return f"the YAML tag {node.tag.replace(_TAG, '!!')} is not supported: write the plain value"
