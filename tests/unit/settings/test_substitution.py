from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.settings.substitution import Substituted, SubstitutionError, substitute


@pytest.mark.parametrize(
    ("text", "completed", "variables"),
    [
        ("plain", "plain", ()),
        ("${A}", "1", ("A",)),
        ("${A}-${B_2}", "1-two", ("A", "B_2")),
        ("${NONE:-5}", "5", ("NONE",)),
        ("${A:-5}", "1", ("A",)),
        ("${EMPTY:-5}", "5", ("EMPTY",)),
        ("${EMPTY}", "", ("EMPTY",)),
        ("${NONE:-}", "", ("NONE",)),
        ("${NONE:-http://h:1/?a=b}", "http://h:1/?a=b", ("NONE",)),
        ("$${A}", "${A}", ()),
        ("$$${A}", "$${A}", ()),
        ("$A and $ and $$", "$A and $ and $$", ()),
    ],
)
def test_variables_defaults_and_the_escape(text: str, completed: str, variables: tuple[str, ...]) -> None:
    environ = {"A": "1", "B_2": "two", "EMPTY": ""}
    assert substitute(text, environ) == Substituted(completed, variables)


def test_the_value_of_a_variable_is_not_looked_at_again() -> None:
    assert substitute("${A}", {"A": "${B}", "B": "secret"}).text == "${B}"


def test_all_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(SubstitutionError) as caught:
        substitute("${ONE}/${TWO}", {})
    assert str(caught.value) == (
        "the environment variable ONE is not set and has no default; write ${ONE:-default}; "
        "the environment variable TWO is not set and has no default; write ${TWO:-default}"
    )


@pytest.mark.parametrize("text", ["${", "${A", "${}", "${1}", "${A-5}", "${A:5}", "${A:-${B}}", "${ A }"])
def test_anything_else_after_a_dollar_brace_is_refused(text: str) -> None:
    with pytest.raises(SubstitutionError, match=r"^expected \$\{NAME\} or \$\{NAME:-default\}"):
        substitute(text, {"A": "1", "B": "2"})


@given(st.text())
def test_text_without_a_dollar_brace_stays_as_it_is(text: str) -> None:
    text = text.replace("${", "")
    assert substitute(text, {}).text == text


@given(st.text())
def test_a_dollar_brace_can_always_be_written_with_the_escape(text: str) -> None:
    text = text.replace("$", "")
    assert substitute(f"{text}$${{{text}", {}).text == f"{text}${{{text}"
