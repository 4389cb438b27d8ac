from __future__ import annotations

import pytest

from prefix_router.settings.problems import COMMAND_LINE, Origin, Problem, SettingsError, did_you_mean


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (Problem("x.yaml", 12, "a.b", "expected c"), "x.yaml:12: a.b: expected c"),
        (Problem("x.yaml", 3, "", "not valid YAML"), "x.yaml:3: not valid YAML"),
        (Problem("x.yaml", None, "", "cannot be read"), "x.yaml: cannot be read"),
        (Problem(COMMAND_LINE, None, "--port", "expected c"), "command line: --port: expected c"),
    ],
)
def test_a_problem_is_one_line_that_leaves_out_what_it_does_not_know(problem: Problem, line: str) -> None:
    assert str(problem) == line


def test_problems_are_told_from_the_top_of_the_file_to_the_command_line() -> None:
    flag = Origin(COMMAND_LINE, flag="--port").problem("listen.port", "a")
    whole = Problem("x.yaml", None, "", "b")
    second = Problem("x.yaml", 2, "z", "c")
    also_second = Problem("x.yaml", 2, "y", "d")
    tenth = Problem("x.yaml", 10, "x", "e")

    error = SettingsError([flag, tenth, second, also_second, whole])

    assert error.problems == (whole, second, also_second, tenth, flag)
    assert str(error).splitlines()[-1] == "command line: --port: a"


def test_a_flag_is_called_by_its_own_name_and_not_by_its_setting() -> None:
    assert Origin(COMMAND_LINE, flag="--port").problem("listen.port", "m").path == "--port"
    assert Origin("x.yaml", 4).problem("listen.port", "m").path == "listen.port"


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("lenght", "; did you mean length?"),
        ("Length", "; did you mean length?"),
        ("virtual-nodes", "; did you mean virtual_nodes?"),
        ("zzz", ""),
    ],
)
def test_the_nearest_known_word_is_suggested_when_one_is_near(word: str, advice: str) -> None:
    assert did_you_mean(word, ("length", "unit", "virtual_nodes")) == advice
