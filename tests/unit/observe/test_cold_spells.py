from __future__ import annotations

import pytest

from prefix_router.observe.cold_spells import (
    BEGIN_REQUESTS,
    END_REQUESTS,
    FORGET_SECONDS,
    REPEAT_SECONDS,
    WINDOW_REQUESTS,
    ColdSpells,
    Finding,
)
from prefix_router.observe.expectation import SURPRISE_TOKENS, Comparison
from prefix_router.routing.fleet import BackendName

A, B = BackendName("a"), BackendName("b")
COLD = Comparison(4096, 16)
WARM = Comparison(4096, 4080)
UNEXPECTED = Comparison(SURPRISE_TOKENS - 1, 0)


@pytest.fixture
def spells() -> ColdSpells:
    made = ColdSpells()
    made.set_backends([A, B])
    return made


def note(
    spells: ColdSpells, *answers: Comparison, now: float = 1000.0, name: BackendName = A
) -> list[Finding | None]:
    return [spells.note(name, answer, now) for answer in answers]


def begin(spells: ColdSpells, now: float = 1000.0, name: BackendName = A) -> None:
    """Half of the window cold, which has just been spoken of."""
    assert note(spells, *[COLD] * BEGIN_REQUESTS, now=now, name=name)[-1] is not None


def test_half_of_the_last_answers_cold_is_a_spell_and_fewer_is_none(spells: ColdSpells) -> None:
    findings = note(spells, *[WARM] * 30, *[COLD] * BEGIN_REQUESTS)
    assert findings[:-1] == [None] * (len(findings) - 1)
    assert findings[-1] == Finding(BEGIN_REQUESTS, WINDOW_REQUESTS, over=False)


def test_a_new_backend_is_not_judged_by_a_few_answers(spells: ColdSpells) -> None:
    assert note(spells, *[COLD] * (BEGIN_REQUESTS - 1)) == [None] * (BEGIN_REQUESTS - 1)
    assert note(spells, COLD) == [Finding(BEGIN_REQUESTS, BEGIN_REQUESTS, over=False)]


def test_only_the_last_answers_count(spells: ColdSpells) -> None:
    note(spells, *[COLD] * (BEGIN_REQUESTS - 1), *[WARM] * WINDOW_REQUESTS)
    assert note(spells, *[COLD] * (BEGIN_REQUESTS - 1)) == [None] * (BEGIN_REQUESTS - 1)


def test_an_answer_of_which_little_was_expected_says_nothing(spells: ColdSpells) -> None:
    assert note(spells, *[UNEXPECTED] * 100) == [None] * 100
    note(spells, *[COLD] * (BEGIN_REQUESTS - 1), UNEXPECTED)
    assert note(spells, COLD) == [Finding(BEGIN_REQUESTS, BEGIN_REQUESTS, over=False)]


def test_an_answer_warmer_than_expected_is_not_cold(spells: ColdSpells) -> None:
    assert note(spells, *[Comparison(512, 4096)] * 100) == [None] * 100


def test_a_spell_that_lasts_is_spoken_of_once_in_a_while(spells: ColdSpells) -> None:
    begin(spells, now=1000)
    assert note(spells, *[COLD] * 50, now=999 + REPEAT_SECONDS) == [None] * 50
    again = Finding(WINDOW_REQUESTS, WINDOW_REQUESTS, over=False)
    assert note(spells, COLD, COLD, now=1000 + REPEAT_SECONDS) == [again, None]


def test_it_is_not_spoken_of_again_without_a_new_answer_that_should_be_warm(spells: ColdSpells) -> None:
    begin(spells, now=1000)
    assert note(spells, UNEXPECTED, now=1000 + REPEAT_SECONDS) == [None]


def test_the_limit_holds_for_each_backend(spells: ColdSpells) -> None:
    begin(spells, name=A)
    begin(spells, name=B)


def test_it_ends_when_a_fifth_or_less_is_cold(spells: ColdSpells) -> None:
    begin(spells)
    findings = note(spells, *[WARM] * WINDOW_REQUESTS)
    [end] = [finding for finding in findings if finding is not None]
    assert end == Finding(END_REQUESTS, WINDOW_REQUESTS, over=True)
    assert note(spells, *[WARM] * 50) == [None] * 50


def test_one_that_comes_back_within_the_minute_is_spoken_of_after_it(spells: ColdSpells) -> None:
    begin(spells, now=1000)
    note(spells, *[WARM] * WINDOW_REQUESTS, now=1010)
    assert note(spells, *[COLD] * WINDOW_REQUESTS, now=1020) == [None] * WINDOW_REQUESTS
    assert note(spells, *[WARM] * WINDOW_REQUESTS, now=1030) == [None] * WINDOW_REQUESTS
    note(spells, *[COLD] * WINDOW_REQUESTS, now=1040)
    assert note(spells, COLD, now=1000 + REPEAT_SECONDS)[0] is not None


def test_a_backend_of_which_nothing_is_expected_any_more_is_let_off(spells: ColdSpells) -> None:
    begin(spells, now=1000)
    assert note(spells, UNEXPECTED, now=1000 + FORGET_SECONDS) == [None]
    assert note(spells, UNEXPECTED, UNEXPECTED, now=1001 + FORGET_SECONDS) == [Finding(0, 0, over=True), None]


def test_old_evidence_does_not_add_to_new_one(spells: ColdSpells) -> None:
    note(spells, *[COLD] * (BEGIN_REQUESTS - 1), now=1000)
    assert note(spells, COLD, now=1001 + FORGET_SECONDS) == [None]


def test_an_engine_that_restarts_is_judged_anew_without_a_word(spells: ColdSpells) -> None:
    begin(spells, now=1000)
    spells.restarted(A)
    assert note(spells, *[WARM] * 30, now=1001) == [None] * 30
    spells.restarted(BackendName("unknown"))


def test_who_has_left_is_not_judged_and_who_stays_keeps_its_evidence(spells: ColdSpells) -> None:
    for name in (A, B):
        note(spells, *[COLD] * (BEGIN_REQUESTS - 1), name=name)
    spells.set_backends([B])
    assert note(spells, *[COLD] * 50, name=A) == [None] * 50
    assert note(spells, COLD, name=B)[0] is not None
    spells.set_backends([A, B])
    assert note(spells, COLD, name=A) == [None]
