from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from benchmarks.micro.case import again, each
from benchmarks.micro.subjects import SUBJECTS
from benchmarks.micro.worker import cases_of


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers = handlers


def test_a_run_calls_as_often_as_it_says() -> None:
    calls: list[None] = []
    run = again(lambda: calls.append(None), 3)
    run()
    run()
    assert len(calls) == 6


def test_a_run_takes_all_arguments_each_time() -> None:
    seen: list[int] = []
    run = each(seen.append, iter([1, 2]))
    run()
    run()
    assert seen == [1, 2, 1, 2]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_cases_of_a_subject_can_be_told_apart(subject: str) -> None:
    names = [case.name for case in cases_of(subject)]
    assert names
    assert len(names) == len(set(names))


@pytest.mark.usefixtures("_logging_as_before")
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_run_can_be_repeated(subject: str) -> None:
    for case in cases_of(subject):
        if "256 backends" in case.name:
            continue  # a ring that takes a second to build, and nothing new
        run = case.prepare()
        run()
        run()
