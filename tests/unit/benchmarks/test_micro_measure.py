from __future__ import annotations

import pytest

from benchmarks.micro.measure import per_operation, total_of

DUMP = "version: 1\ncmd: python\nevents: Ir\n\nfn=(1) main\n16 400\n\ntotals: 908574\n"


def test_the_total_of_a_dump_is_its_instructions() -> None:
    assert total_of(DUMP) == 908574


def test_a_file_without_a_total_is_refused() -> None:
    with pytest.raises(ValueError, match="names no total"):
        total_of("version: 1\n")


def test_what_one_run_and_two_have_in_common_cancels_out() -> None:
    marks, start = 7, 79_000_000
    totals = [start, 1000 + marks, 2000 + marks, start, 50 + marks, 100 + marks]
    assert per_operation({"ten": 10, "one": 1}, totals) == {"ten": 100, "one": 50}


def test_a_missing_dump_is_noticed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        per_operation({"a": 1, "b": 1}, [0, 1, 2])
