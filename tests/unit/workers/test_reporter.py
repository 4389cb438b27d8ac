from __future__ import annotations

import pytest

from prefix_router.routing.fleet import BackendName
from prefix_router.routing.health import HealthEvent
from prefix_router.workers import reporter as reporters
from prefix_router.workers.messages import Evidence, Report
from prefix_router.workers.reporter import BATCH_EVENTS, Reporter
from tests.support.events import finished_request
from tests.support.waiting import until


class Pool:
    """Takes reports, or refuses them."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.reads = True
        self.reporter = Reporter(self.take, lambda: (3, 1))

    def take(self, report: Report) -> bool:
        if self.reads:
            self.reports.append(report)
        return self.reads

    @property
    def finished(self) -> list[str]:
        return [event.request_id for report in self.reports for event in report.finished]

    @property
    def evidence(self) -> list[HealthEvent]:
        return [evidence.event for report in self.reports for evidence in report.evidence]


def evidence(event: HealthEvent, name: str = "a") -> Evidence:
    return Evidence(BackendName(name), f"http://{name}", event, "", None)


async def test_a_request_that_ended_is_reported_soon_and_once() -> None:
    pool = Pool()
    pool.reporter.request_finished(finished_request("1"))
    pool.reporter.request_finished(finished_request("2"))
    assert pool.reports == []
    await until(lambda: pool.reports)
    pool.reporter.flush()
    assert pool.finished == ["1", "2"]


async def test_a_full_batch_does_not_wait() -> None:
    pool = Pool()
    for number in range(BATCH_EVENTS):
        pool.reporter.request_finished(finished_request(str(number)))
    assert len(pool.finished) == BATCH_EVENTS


async def test_a_report_says_how_busy_the_worker_is_and_what_it_answers() -> None:
    pool = Pool()
    pool.reporter.flush(answers=7)
    assert pool.reports == [Report(3, 1, [], [], 0, 7)]


async def test_evidence_that_may_change_a_state_goes_at_once_and_after_what_came_before() -> None:
    pool = Pool()
    pool.reporter.add_evidence(evidence(HealthEvent.REQUEST_OK), False)
    assert pool.reports == []
    pool.reporter.add_evidence(evidence(HealthEvent.REQUEST_BAD), True)
    assert pool.evidence == [HealthEvent.REQUEST_OK, HealthEvent.REQUEST_BAD]


async def test_good_evidence_is_told_once_for_each_backend_and_batch_and_again_after_bad() -> None:
    pool = Pool()
    pool.reads = False
    for event, name in [
        (HealthEvent.REQUEST_OK, "a"),
        (HealthEvent.REQUEST_OK, "a"),
        (HealthEvent.REQUEST_OK, "b"),
        (HealthEvent.REQUEST_BAD, "a"),
        (HealthEvent.REQUEST_OK, "a"),
        (HealthEvent.REQUEST_OK, "a"),
    ]:
        pool.reporter.add_evidence(evidence(event, name), event is HealthEvent.REQUEST_BAD)
    pool.reads = True
    pool.reporter.flush()
    ok, bad = HealthEvent.REQUEST_OK, HealthEvent.REQUEST_BAD
    assert pool.evidence == [ok, ok, bad, ok]
    pool.reporter.add_evidence(evidence(ok), False)
    await until(lambda: len(pool.reports) == 2)
    assert pool.evidence[-1] is ok


async def test_what_the_pool_did_not_take_is_told_later() -> None:
    pool = Pool()
    pool.reads = False
    pool.reporter.request_finished(finished_request("1"))
    pool.reporter.add_evidence(evidence(HealthEvent.UNREACHABLE), True)
    assert pool.reports == []
    pool.reads = True
    pool.reporter.flush()
    assert (pool.finished, pool.evidence) == (["1"], [HealthEvent.UNREACHABLE])


async def test_a_pool_that_does_not_read_costs_no_more_than_so_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporters, "MAX_KEPT_EVENTS", 5)
    monkeypatch.setattr(reporters, "MAX_KEPT_EVIDENCE", 2)
    pool = Pool()
    pool.reads = False
    for number in range(8):
        pool.reporter.request_finished(finished_request(str(number)))
        pool.reporter.add_evidence(evidence(HealthEvent.REQUEST_BAD, str(number)), True)
    pool.reads = True
    pool.reporter.flush()
    [report] = pool.reports
    assert (len(report.finished), report.lost) == (5, 3)
    assert [told.name for told in report.evidence] == ["6", "7"]
    pool.reporter.flush()
    assert pool.reports[-1].lost == 0
