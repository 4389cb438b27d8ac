from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_router.routing.retry import Failure, Verdict, verdict

SAME, NEXT, STOP = Verdict.SAME_BACKEND, Verdict.NEXT_BACKEND, Verdict.GIVE_UP


@pytest.mark.parametrize(
    ("failure", "plain", "unrepeatable", "unreplayable"),
    [
        (Failure.UNREACHABLE, NEXT, NEXT, NEXT),
        (Failure.CONNECT_FAILED, NEXT, NEXT, NEXT),
        (Failure.EXHAUSTED, STOP, STOP, STOP),
        (Failure.STALE_CONNECTION, SAME, SAME, STOP),
        (Failure.RESET, NEXT, STOP, STOP),
        (Failure.BAD_RESPONSE, STOP, STOP, STOP),
        (Failure.FIRST_BYTE_TIMEOUT, STOP, STOP, STOP),
        (Failure.BACK_PRESSURE, NEXT, NEXT, STOP),
        (Failure.BROKEN_STREAM, STOP, STOP, STOP),
    ],
)
def test_the_table(failure: Failure, plain: Verdict, unrepeatable: Verdict, unreplayable: Verdict) -> None:
    assert verdict(failure, attempt=1, max_attempts=3, replayable=True, repeatable=True) is plain
    assert verdict(failure, attempt=1, max_attempts=3, replayable=True, repeatable=False) is unrepeatable
    assert verdict(failure, attempt=1, max_attempts=3, replayable=False, repeatable=False) is unreplayable


@given(st.sampled_from(Failure), st.integers(1, 10), st.integers(1, 10), st.booleans(), st.booleans())
def test_nothing_is_sent_to_more_backends_than_allowed(
    failure: Failure, attempt: int, max_attempts: int, replayable: bool, repeatable: bool
) -> None:
    if attempt < max_attempts:
        return
    given_up = verdict(
        failure, attempt=attempt, max_attempts=max_attempts, replayable=replayable, repeatable=repeatable
    )
    assert given_up is not NEXT


@given(st.integers(1, 10), st.booleans(), st.booleans())
def test_nothing_is_sent_again_after_the_first_byte(attempt: int, replayable: bool, repeatable: bool) -> None:
    assert (
        verdict(
            Failure.BROKEN_STREAM,
            attempt=attempt,
            max_attempts=10,
            replayable=replayable,
            repeatable=repeatable,
        )
        is STOP
    )


def test_a_prompt_that_breaks_backends_is_not_carried_through_the_fleet() -> None:
    failure = Failure.RESET
    assert verdict(failure, attempt=1, max_attempts=10, replayable=True, repeatable=True) is NEXT
    assert verdict(failure, attempt=2, max_attempts=10, replayable=True, repeatable=True) is STOP


def test_every_failure_has_a_row() -> None:
    for failure in Failure:
        verdict(failure, attempt=1, max_attempts=1, replayable=True, repeatable=True)
