from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from prefix_router.settings.document import MAX_DEPTH, Mapping, Scalar, Sequence, Unusable, parse
from prefix_router.settings.problems import Origin, SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping as AbstractMapping

    from prefix_router.settings.document import Node, PlainValue


def tree(text: str, environ: AbstractMapping[str, str] | None = None) -> Mapping:
    root = parse(text, "x.yaml", environ or {})
    assert isinstance(root, Mapping)
    return root


def node_at(text: str, key: str = "a", environ: AbstractMapping[str, str] | None = None) -> Node:
    return tree(text, environ).entries[key].node


def value_of(text: str, environ: AbstractMapping[str, str] | None = None) -> PlainValue:
    node = node_at(text, environ=environ)
    assert isinstance(node, Scalar), node
    return node.value


def syntax_problem(text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        parse(text, "x.yaml", {})
    (problem,) = caught.value.problems
    return str(problem)


def test_every_node_knows_its_line() -> None:
    root = tree("# comment\n\na: 1\nb:\n  - x\n  -\n    c: 2\n")
    assert root.entries["a"].node.origin == Origin("x.yaml", 3)
    assert root.entries["b"].key == Origin("x.yaml", 4)
    items = root.entries["b"].node
    assert isinstance(items, Sequence)
    assert [item.origin.line for item in items.items] == [5, 7]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8000", 8000),
        ("0x10", 16),
        ("1.5", 1.5),
        ("true", True),
        ("off", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("none", "none"),
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ('"8000"', "8000"),
        ("'true'", "true"),
        ("|\n  text", "text\n"),
        ("2026-01-01", "2026-01-01"),
        ("=", "="),
        ("!!str 8000", "8000"),
    ],
)
def test_a_scalar_has_the_value_that_yaml_gives_it(written: str, value: PlainValue) -> None:
    found = value_of(f"a: {written}\n")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${P}", 8000),
        ("${NONE:-9000}", 9000),
        ("${NONE:-true}", True),
        ("${NONE:-}", None),
        ("1${P}", 18000),
        ('"${P}"', "8000"),
        ("'${P}'", "8000"),
        ("http://h:${P}/x", "http://h:8000/x"),
        ("${SPACED}", 5),
        ("$${P}", "${P}"),
        ("${YAML}", "{b: c}"),
    ],
)
def test_a_variable_is_read_like_the_text_it_stands_for_and_stays_text_in_quotes(
    written: str, value: PlainValue
) -> None:
    environ = {"P": "8000", "SPACED": " 5 ", "YAML": "{b: c}"}
    found = value_of(f"a: {written}\n", environ)
    assert (found, type(found)) == (value, type(value))


def test_a_scalar_remembers_its_variables() -> None:
    node = node_at("a: ${P}\n", environ={"P": "x"})
    assert isinstance(node, Scalar)
    assert (node.variables, node.written) == (("P",), "x")


def test_a_missing_variable_makes_only_its_own_value_unusable() -> None:
    root = tree("a: ${P}\nb: 1\n")
    node = root.entries["a"].node
    assert isinstance(node, Unusable)
    assert node.message == "the environment variable P is not set and has no default; write ${P:-default}"
    assert isinstance(root.entries["b"].node, Scalar)


def test_a_repeated_key_keeps_its_first_value_and_is_recorded() -> None:
    root = tree("a: 1\nb: 2\na: 3\n")
    assert root.repeated == (("a", Origin("x.yaml", 3)),)
    assert value_of("a: 1\nb: 2\na: 3\n") == 1


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("!mine 1", "the YAML tag !mine is not supported: write the plain value"),
        ("!mine [1]", "the YAML tag !mine is not supported: write the plain value"),
        ("!mine {b: 1}", "the YAML tag !mine is not supported: write the plain value"),
        (
            "!!python/object/apply:os.system [echo]",
            "the YAML tag !!python/object/apply:os.system is not supported: write the plain value",
        ),
        ("!!binary aGk=", "the YAML tag !!binary is not supported: write the plain value"),
        ("!!set {b}", "the YAML tag !!set is not supported: write the plain value"),
        ("!!int x", "'x' cannot be read as int"),
        ('!!int ""', "'' cannot be read as int"),
        ("!!bool 7", "'7' cannot be read as bool"),
        ("!!float x", "'x' cannot be read as float"),
        ("9" * 5000, f"'{'9' * 59} cannot be read as int"),
    ],
)
def test_what_is_no_plain_value_is_unusable_and_says_why(written: str, message: str) -> None:
    node = node_at(f"a: {written}\n")
    assert isinstance(node, Unusable)
    assert node.message == message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a: 1\nb: [1\n",
            (
                "x.yaml:3: not valid YAML: while parsing a flow sequence expected ',' or ']', "
                "but got '<stream end>' (column 1)"
            ),
        ),
        ("a: b: c\n", "x.yaml:1: not valid YAML: mapping values are not allowed here (column 5)"),
        (
            "a: 1\n\tb: 2\n",
            (
                "x.yaml:2: not valid YAML: while scanning for the next token found character '\\t' "
                "that cannot start any token (column 1)"
            ),
        ),
        (
            "a: 1\n---\nb: 1\n",
            (
                "x.yaml:2: not valid YAML: expected a single document in the stream "
                "but found another document (column 1)"
            ),
        ),
        ("a: 1\nb: \x07\n", "x.yaml:2: character U+0007 is not allowed"),
        ("a: &x 1\nb: *x\n", "x.yaml:2: aliases (*name) are not supported: write the value out (column 4)"),
        ("a: &x [*x]\n", "x.yaml:1: aliases (*name) are not supported: write the value out (column 8)"),
        (
            "a: {b: ${P:-1}}\n",
            (
                "x.yaml:1: not valid YAML: while parsing a flow mapping expected ',' or '}', but got '{' "
                "(column 9); inside { } and [ ] a ${...} must stand in quotes"
            ),
        ),
    ],
)
def test_text_that_is_not_usable_yaml_is_refused_with_its_line(text: str, problem: str) -> None:
    assert syntax_problem(text) == problem


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 50_000, "{a: " * 50_000])
def test_bottomless_nesting_is_refused_without_exhausting_the_stack(text: str) -> None:
    assert f"nested more than {MAX_DEPTH} levels deep" in syntax_problem(text)


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "---\n...\n"])
def test_a_document_without_a_value_is_none_or_null(text: str) -> None:
    root = parse(text, "x.yaml", {})
    assert root is None or (isinstance(root, Scalar) and root.value is None)


def test_keys_that_are_no_words_are_kept_for_the_loader_to_refuse() -> None:
    root = tree("1: a\n? [b]\n: c\nnull: d\n")
    assert list(root.entries) == ["1", "?", "null"]
