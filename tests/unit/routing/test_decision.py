from __future__ import annotations

import re

import pytest

from prefix_router.routing.decision import Decision, Query, Reason
from tests.support.fleets import backend_names, member


def test_reasons_are_unique_words_fit_for_a_label_and_a_header() -> None:
    values = [reason.value for reason in Reason]
    assert len(set(values)) == len(Reason.__members__)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", value) for value in values)


def test_words_that_dashboards_depend_on_do_not_change() -> None:
    assert {reason.name: reason.value for reason in Reason} == {
        "AFFINITY": "affinity",
        "OVERFLOW": "overflow",
        "SATURATED": "saturated",
        "FAILOVER": "failover",
        "PLACED": "placed",
        "KEYLESS": "keyless",
        "CONTINUATION": "continuation",
        "SESSION": "session",
        "LEAST_OUTSTANDING_REQUESTS": "least_outstanding_requests",
        "ROUND_ROBIN": "round_robin",
        "RANDOM": "random",
    }


def test_first_attempt_has_turned_nobody_down() -> None:
    query = Query(key=1, model="m", draw=2)
    assert query.session is None
    assert not query.failed
    assert not query.refused


def test_each_further_attempt_knows_who_has_failed_and_who_has_refused() -> None:
    a, b, c = backend_names("a", "b", "c")
    first = Query(key=1, model="m", draw=2)
    third = first.after_failure(a).after_refusal(b).after_failure(c)
    assert third.failed == frozenset({a, c})
    assert third.refused == frozenset({b})
    assert not first.failed
    assert (third.key, third.model, third.draw) == (1, "m", 2)


def test_query_and_decision_cannot_be_changed_after_the_fact() -> None:
    query = Query(key=1, model="m", draw=2)
    decision = Decision(member("a"), Reason.KEYLESS)
    assert decision.home is None
    with pytest.raises(AttributeError):
        query.key = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        decision.reason = Reason.AFFINITY  # type: ignore[misc]
