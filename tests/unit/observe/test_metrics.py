from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from prefix_router import __version__
from prefix_router.observe.catalogue import CATALOGUE, PREFIX
from prefix_router.observe.events import (
    BackendChanged,
    DiscoveryStatus,
    EngineSample,
    Outcome,
    RequestRecord,
    RetryCause,
)
from prefix_router.observe.metrics import Metrics
from prefix_router.observe.startup import StartupPhase
from prefix_router.openai_api.errors import ErrorCode
from prefix_router.routing.decision import Reason
from prefix_router.routing.fleet import BackendName, BackendState

A, B, GONE = BackendName("a"), BackendName("b"), BackendName("gone")


class Scrape:
    """One scrape, as Prometheus reads it."""

    def __init__(self, metrics: Metrics) -> None:
        self.families = {
            family.name: family for family in text_string_to_metric_families(metrics.render().decode())
        }
        self._series = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float | None:
        """The value of one series, None when it is not exported."""
        return self._series.get((PREFIX + name, frozenset(labels.items())))

    def labels(self, name: str) -> set[str]:
        """All label values of one metric."""
        return {
            value
            for (series, labels) in self._series
            if series == PREFIX + name
            for _, value in labels
        }  # fmt: skip


@pytest.fixture
def in_flight() -> dict[str, int]:
    return {}


@pytest.fixture
def metrics(in_flight: dict[str, int]) -> Metrics:
    made = Metrics(lambda: in_flight, key_shares=lambda: {A: 0.25, B: 0.75})
    made.set_backends([A, B])
    return made


@pytest.fixture
def finish(metrics: Metrics, request_finished: RequestRecord) -> Callable[..., None]:
    def finish(**changes: Any) -> None:
        metrics.request_finished(replace(request_finished, **changes))

    return finish


def changed(name: BackendName, after: BackendState) -> BackendChanged:
    return BackendChanged(name, BackendState.STARTING, after, "probe")


class TestRequests:
    def test_they_are_counted_by_backend_reason_and_status_class(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish()
        finish(status=204)
        finish(status=404)
        finish(backend=B, reason=Reason.OVERFLOW)
        scrape = Scrape(metrics)
        assert scrape("requests_total", backend="a", reason="affinity", status_class="2xx") == 2
        assert scrape("requests_total", backend="a", reason="affinity", status_class="4xx") == 1
        assert scrape("requests_total", backend="b", reason="overflow", status_class="2xx") == 1

    @pytest.mark.parametrize("outcome", [Outcome.CLIENT_DISCONNECTED, Outcome.UPSTREAM_TRUNCATED])
    def test_one_that_was_not_delivered_is_aborted_whatever_its_status(
        self, metrics: Metrics, finish: Callable[..., None], outcome: Outcome
    ) -> None:
        finish(outcome=outcome)
        scrape = Scrape(metrics)
        assert scrape("requests_total", backend="a", reason="affinity", status_class="aborted") == 1

    @pytest.mark.parametrize("status", [0, 101, 999])
    def test_a_status_outside_the_classes_does_not_make_a_class(
        self, metrics: Metrics, finish: Callable[..., None], status: int
    ) -> None:
        finish(status=status)
        scrape = Scrape(metrics)
        assert scrape("requests_total", backend="a", reason="affinity", status_class="other") == 1

    def test_the_routers_own_answers_have_no_backend_and_no_reason(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(backend=None, reason=None, home=None, status=404, outcome=Outcome.REJECTED)
        scrape = Scrape(metrics)
        assert scrape("requests_total", backend="none", reason="none", status_class="4xx") == 1
        assert scrape("request_duration_seconds_count", reason="none") == 1
        assert scrape("added_latency_seconds_count") == 0

    def test_a_backend_that_has_left_does_not_come_back_as_a_label(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(backend=GONE, home=GONE, reason=Reason.OVERFLOW)
        metrics.backend_changed(changed(GONE, BackendState.DOWN))
        metrics.engine_sampled(EngineSample(GONE, requests_running=1))
        scrape = Scrape(metrics)
        assert scrape("requests_total", backend="other", reason="overflow", status_class="2xx") == 1
        assert scrape("overflow_total", home="other") == 1
        assert b"gone" not in metrics.render()


class TestTimes:
    def test_each_goes_into_its_histogram_by_reason(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(first_byte_seconds=0.3, first_token_seconds=0.4, duration_seconds=4.0, router_seconds=0.0002)
        scrape = Scrape(metrics)
        assert scrape("time_to_first_byte_seconds_sum", reason="affinity") == 0.3
        assert scrape("time_to_first_token_seconds_sum", reason="affinity") == 0.4
        assert scrape("request_duration_seconds_sum", reason="affinity") == 4.0
        assert scrape("added_latency_seconds_sum") == 0.0002
        assert scrape("added_latency_seconds_bucket", le="0.0001") == 0
        assert scrape("added_latency_seconds_bucket", le="0.0002") == 1
        assert scrape("backend_first_byte_seconds_sum", backend="a") == 0.3
        assert scrape("backend_first_byte_seconds_count", backend="a") == 1

    def test_what_did_not_happen_is_not_timed(self, metrics: Metrics, finish: Callable[..., None]) -> None:
        finish(first_byte_seconds=None, first_token_seconds=None)
        scrape = Scrape(metrics)
        assert scrape("time_to_first_byte_seconds_count", reason="affinity") is None
        assert scrape("time_to_first_token_seconds_count", reason="affinity") is None
        assert scrape("backend_first_byte_seconds_count", backend="a") is None
        assert scrape("request_duration_seconds_count", reason="affinity") == 1

    def test_a_reason_that_never_occurred_has_no_histogram(self, metrics: Metrics) -> None:
        assert Scrape(metrics).labels("request_duration_seconds_bucket") == set()


class TestLeavingHome:
    def test_overflow_and_failover_are_counted_at_the_home_that_was_left(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(backend=B, home=A, reason=Reason.OVERFLOW)
        finish(backend=A, home=B, reason=Reason.FAILOVER)
        finish(backend=A, home=B, reason=Reason.FAILOVER)
        finish(backend=A, home=A, reason=Reason.SATURATED)
        finish(backend=A, home=None, reason=Reason.OVERFLOW)
        scrape = Scrape(metrics)
        assert (scrape("overflow_total", home="a"), scrape("overflow_total", home="b")) == (1, 0)
        assert (scrape("failover_total", home="a"), scrape("failover_total", home="b")) == (0, 2)


class TestTrouble:
    def test_retries_are_counted_by_cause(self, metrics: Metrics, finish: Callable[..., None]) -> None:
        finish(retry_causes=(RetryCause.CONNECT, RetryCause.CONNECT, RetryCause.BACK_PRESSURE))
        scrape = Scrape(metrics)
        assert scrape("retries_total", cause="connect") == 2
        assert scrape("retries_total", cause="back_pressure") == 1
        assert scrape("retries_total", cause="reset") == 0

    def test_denied_retries_are_counted_by_request(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish()
        finish(retry_denied=True)
        assert Scrape(metrics)("retries_denied_total") == 1

    def test_time_in_line_is_observed_for_those_who_had_to_wait(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish()
        finish(queue_seconds=0.05)
        finish(queue_seconds=3.0, backend=None, reason=None, error_code="queue_timeout")
        scrape = Scrape(metrics)
        assert scrape("queue_wait_seconds_count") == 2
        assert scrape("queue_wait_seconds_bucket", le="0.1") == 1
        assert scrape("queue_wait_seconds_sum") == pytest.approx(3.05)

    def test_rejections_are_counted_by_code(self, metrics: Metrics, finish: Callable[..., None]) -> None:
        finish(backend=None, reason=None, outcome=Outcome.REJECTED, error_code="request_too_large")
        assert Scrape(metrics)("rejected_requests_total", code="request_too_large") == 1

    def test_a_code_nobody_knows_does_not_make_a_label(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(error_code="made up")
        scrape = Scrape(metrics)
        assert scrape("rejected_requests_total", code="other") == 1
        assert scrape.labels("rejected_requests_total") == {code.value for code in ErrorCode} | {"other"}

    def test_disconnects_and_truncations_are_told_apart(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(outcome=Outcome.CLIENT_DISCONNECTED)
        finish(outcome=Outcome.UPSTREAM_TRUNCATED)
        finish(outcome=Outcome.UPSTREAM_TRUNCATED)
        scrape = Scrape(metrics)
        assert scrape("client_disconnects_total") == 1
        assert scrape("upstream_truncated_total", backend="a") == 2
        assert scrape("upstream_truncated_total", backend="b") == 0


class TestTokens:
    def test_prompt_and_cached_tokens_are_counted_by_reason_and_by_backend(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(prompt_tokens=100, cached_tokens=96, completion_tokens=7)
        finish(prompt_tokens=100, cached_tokens=0, completion_tokens=7)
        scrape = Scrape(metrics)
        assert scrape("prompt_tokens_total", reason="affinity") == 200
        assert scrape("cached_tokens_total", reason="affinity") == 96
        assert scrape("backend_prompt_tokens_total", backend="a") == 200
        assert scrape("backend_cached_tokens_total", backend="a") == 96
        assert scrape("completion_tokens_total") == 14

    @pytest.mark.parametrize(("prompt", "cached"), [(100, None), (None, 96), (None, None)])
    def test_a_response_that_reports_only_one_of_them_does_not_distort_the_hit_rate(
        self, metrics: Metrics, finish: Callable[..., None], prompt: int | None, cached: int | None
    ) -> None:
        finish(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=None)
        scrape = Scrape(metrics)
        assert scrape("prompt_tokens_total", reason="affinity") == 0
        assert scrape("cached_tokens_total", reason="affinity") == 0
        assert scrape("backend_prompt_tokens_total", backend="a") == 0
        assert scrape("completion_tokens_total") == 0


class TestSharedPrefixes:
    def test_requests_and_times_are_counted_by_how_much_is_shared(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(shared_tokens=0, first_token_seconds=2.0)
        finish(shared_tokens=300, first_token_seconds=0.04)
        finish(shared_tokens=1000, first_token_seconds=None)
        scrape = Scrape(metrics)
        assert scrape("shared_prefix_requests_total", shared_prefix="nothing") == 1
        assert scrape("shared_prefix_requests_total", shared_prefix="256 to 1k") == 2
        assert scrape("shared_prefix_requests_total", shared_prefix="over 16k") == 0
        assert scrape("shared_prefix_first_token_seconds_sum", shared_prefix="nothing") == 2.0
        assert scrape("shared_prefix_first_token_seconds_count", shared_prefix="256 to 1k") == 1
        assert scrape("shared_prefix_first_token_seconds_bucket", shared_prefix="256 to 1k", le="0.05") == 1
        assert scrape("shared_prefix_first_token_seconds_bucket", shared_prefix="256 to 1k", le="0.025") == 0
        assert scrape("shared_prefix_first_token_seconds_count", shared_prefix="over 16k") is None

    def test_tokens_are_counted_by_reason_as_well(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(shared_tokens=2000, prompt_tokens=3000, cached_tokens=1984)
        finish(shared_tokens=2000, prompt_tokens=3000, cached_tokens=16)
        finish(shared_tokens=2000, reason=Reason.OVERFLOW, backend=B, prompt_tokens=3000, cached_tokens=0)
        finish(shared_tokens=2000, prompt_tokens=3000, cached_tokens=None)
        finish(shared_tokens=2000, prompt_tokens=None, cached_tokens=16)
        scrape = Scrape(metrics)
        for reason, prompt, cached in (("affinity", 6000, 2000), ("overflow", 3000, 0)):
            labels = {"shared_prefix": "1k to 4k", "reason": reason}
            assert scrape("shared_prefix_prompt_tokens_total", **labels) == prompt
            assert scrape("shared_prefix_cached_tokens_total", **labels) == cached
        assert scrape("shared_prefix_requests_total", shared_prefix="1k to 4k") == 5
        assert scrape("shared_prefix_prompt_tokens_total", shared_prefix="nothing", reason="affinity") == 0, (
            "all buckets of a reason that has occurred are there"
        )
        assert (
            scrape("shared_prefix_prompt_tokens_total", shared_prefix="1k to 4k", reason="failover") is None
        )

    def test_a_request_of_which_it_is_not_known_does_not_count(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(shared_tokens=None)
        scrape = Scrape(metrics)
        assert scrape("shared_prefix_requests_total", shared_prefix="nothing") == 0
        assert scrape.labels("shared_prefix_prompt_tokens_total") == set()
        assert scrape.labels("shared_prefix_first_token_seconds_count") == set()

    def test_there_are_never_more_series_than_said(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        for reason in Reason:
            for shared_tokens in range(0, 200_000, 100):
                finish(reason=reason, shared_tokens=shared_tokens)
        series = [line for line in metrics.render().splitlines() if b"_shared_prefix_" in line[:40]]
        assert len([line for line in series if not line.startswith(b"#")]) == 90 + 12 * len(Reason)


class TestExpectations:
    def test_expected_and_observed_are_counted_over_the_same_requests(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        known = {"shared_tokens": 900, "prompt_length": 1000, "prompt_tokens": 2000, "cached_tokens": 1600}
        finish(**known, expected_tokens=900)
        finish(**known, expected_tokens=700)
        finish(**known, expected_tokens=None)
        finish(**(known | {"cached_tokens": None}), expected_tokens=900)
        finish(**(known | {"prompt_length": None}), expected_tokens=900)
        scrape = Scrape(metrics)
        assert scrape("backend_expected_cached_tokens_total", backend="a") == 1800 + 1400
        assert scrape("backend_observed_cached_tokens_total", backend="a") == 1600 + 1600
        assert scrape("backend_expected_cached_tokens_total", backend="b") == 0

    def test_surprises_are_counted_by_kind(self, metrics: Metrics, finish: Callable[..., None]) -> None:
        known = {"shared_tokens": 900, "prompt_length": 1000, "prompt_tokens": 1000, "backend": B}
        for expected, observed in ((900, 0), (900, 644), (900, 645), (0, 255), (0, 256)):
            finish(**known, expected_tokens=expected, cached_tokens=observed)
        scrape = Scrape(metrics)
        assert scrape("backend_cache_surprises_total", backend="b", kind="cold") == 2
        assert scrape("backend_cache_surprises_total", backend="b", kind="warm") == 1
        assert scrape("backend_cache_surprises_total", backend="a", kind="cold") == 0

    def test_without_an_expectation_there_are_no_series(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(shared_tokens=900, prompt_length=1000, expected_tokens=None)
        assert Scrape(metrics).labels("backend_expected_cached_tokens_total") == set()
        assert Scrape(metrics).labels("backend_cache_surprises_total") == set()

    def test_they_go_with_their_backend_whose_last_requests_are_others(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        known = {"shared_tokens": 900, "prompt_length": 1000, "expected_tokens": 900}
        finish(**known, prompt_tokens=1000, cached_tokens=0)
        metrics.set_backends([B])
        assert b'="a"' not in metrics.render()
        finish(**known, prompt_tokens=1000, cached_tokens=0)
        assert b'="a"' not in metrics.render()
        scrape = Scrape(metrics)
        assert scrape("backend_expected_cached_tokens_total", backend="other") == 900
        assert scrape("backend_observed_cached_tokens_total", backend="other") == 0
        assert scrape("backend_cache_surprises_total", backend="other", kind="cold") == 1


class TestBackends:
    def test_one_that_never_changed_and_got_no_request_is_exported_from_the_start(
        self, metrics: Metrics
    ) -> None:
        scrape = Scrape(metrics)
        assert scrape("in_flight", backend="a") == 0
        assert scrape("backend_state", backend="a", state="starting") == 1
        assert scrape("overflow_total", home="a") == 0

    def test_in_flight_is_read_when_it_is_asked_for(
        self, metrics: Metrics, in_flight: dict[str, int]
    ) -> None:
        in_flight |= {A: 5, GONE: 1}
        assert Scrape(metrics)("in_flight", backend="a") == 5
        in_flight[A] = 2
        assert Scrape(metrics)("in_flight", backend="a") == 2
        assert Scrape(metrics).labels("in_flight") == {"a", "b"}

    def test_exactly_one_state_is_one(self, metrics: Metrics) -> None:
        metrics.backend_changed(changed(A, BackendState.HEALTHY))
        metrics.backend_changed(changed(A, BackendState.EJECTED))
        scrape = Scrape(metrics)
        states = {state: scrape("backend_state", backend="a", state=state.value) for state in BackendState}
        assert states == {state: float(state is BackendState.EJECTED) for state in BackendState}
        assert scrape("health_transitions_total", backend="a", to="healthy") == 1
        assert scrape("health_transitions_total", backend="a", to="ejected") == 1

    def test_all_series_of_one_that_left_are_gone_and_the_others_stay_as_they_were(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        for name in (A, B):
            finish(backend=name, home=name, reason=Reason.OVERFLOW, outcome=Outcome.UPSTREAM_TRUNCATED)
            metrics.backend_changed(changed(name, BackendState.HEALTHY))
            metrics.engine_sampled(EngineSample(name, 1, 2, 0.5, 10, 5))
        metrics.set_backends([B])
        assert b'="a"' not in metrics.render()
        scrape = Scrape(metrics)
        assert scrape("requests_total", backend="b", reason="overflow", status_class="aborted") == 1
        assert scrape("backend_state", backend="b", state="healthy") == 1

    def test_one_that_comes_back_starts_anew(self, metrics: Metrics, finish: Callable[..., None]) -> None:
        finish()
        metrics.backend_changed(changed(A, BackendState.HEALTHY))
        metrics.set_backends([B])
        metrics.set_backends([A, B])
        scrape = Scrape(metrics)
        assert scrape("requests_total", backend="a", reason="affinity", status_class="2xx") is None
        assert scrape("backend_state", backend="a", state="starting") == 1

    def test_odd_names_are_escaped(self, metrics: Metrics) -> None:
        odd = BackendName('a"\\\nb')
        metrics.set_backends([odd])
        assert Scrape(metrics)("in_flight", backend=odd) == 0


class TestEngines:
    def test_the_last_sample_is_exported(self, metrics: Metrics) -> None:
        metrics.engine_sampled(EngineSample(A, 1, 2, 0.5, 1000, 900))
        metrics.engine_sampled(EngineSample(A, 3, 4, 0.75, 2000, 1800))
        scrape = Scrape(metrics)
        assert scrape("engine_requests_running", backend="a") == 3
        assert scrape("engine_requests_waiting", backend="a") == 4
        assert scrape("engine_kv_cache_usage_ratio", backend="a") == 0.75
        assert scrape("engine_prefix_cache_queried_tokens_total", backend="a") == 2000
        assert scrape("engine_prefix_cache_hit_tokens_total", backend="a") == 1800

    def test_a_restarted_engine_resets_its_counters(self, metrics: Metrics) -> None:
        metrics.engine_sampled(EngineSample(A, prefix_cache_queried_tokens=1000))
        metrics.engine_sampled(EngineSample(A, prefix_cache_queried_tokens=16))
        assert Scrape(metrics)("engine_prefix_cache_queried_tokens_total", backend="a") == 16

    def test_what_an_engine_does_not_say_is_not_made_up(self, metrics: Metrics) -> None:
        metrics.engine_sampled(EngineSample(A, requests_running=0))
        scrape = Scrape(metrics)
        assert scrape("engine_requests_running", backend="a") == 0
        assert scrape("engine_requests_waiting", backend="a") is None
        assert scrape("engine_requests_running", backend="b") is None

    def test_a_backend_that_is_down_has_no_sample(self, metrics: Metrics) -> None:
        metrics.engine_sampled(EngineSample(A, requests_running=3))
        metrics.backend_changed(changed(A, BackendState.EJECTED))
        assert Scrape(metrics)("engine_requests_running", backend="a") == 3
        metrics.backend_changed(changed(A, BackendState.DOWN))
        assert Scrape(metrics)("engine_requests_running", backend="a") is None


class TestRender:
    def test_every_metric_of_the_catalogue_is_there_from_the_start_with_its_type(
        self, metrics: Metrics
    ) -> None:
        families = Scrape(metrics).families
        exported = {name: family.type for name, family in families.items() if name.startswith(PREFIX)}
        expected = {
            PREFIX + metric.name.removesuffix("_total"): metric.kind.value for metric in CATALOGUE
        }  # fmt: skip
        assert exported == expected

    def test_every_series_has_exactly_the_labels_of_the_catalogue(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        finish(reason=Reason.FAILOVER, outcome=Outcome.UPSTREAM_TRUNCATED)
        finish(backend=GONE, home=GONE, reason=Reason.OVERFLOW)
        finish(shared_tokens=900, prompt_length=1000, expected_tokens=900)
        metrics.backend_changed(changed(A, BackendState.HEALTHY))
        metrics.engine_sampled(EngineSample(A, 1, 2, 0.5, 1000, 900))
        metrics.certificate_ends = {"listen.tls": 1.0}
        metrics.discovery = lambda: [DiscoveryStatus("dns", True, 2, 1, 1.0, None)]
        metrics.startups = lambda: {A: {StartupPhase.HEALTHY: 2.5}}
        families = Scrape(metrics).families
        for metric in CATALOGUE:
            samples = families[PREFIX + metric.name.removesuffix("_total")].samples
            assert samples, metric.name
            for sample in samples:
                assert set(sample.labels) - {"le"} == set(metric.labels), metric.name

    def test_it_says_which_version_runs_and_what_the_process_uses(self, metrics: Metrics) -> None:
        scrape = Scrape(metrics)
        assert scrape("build_info", version=__version__) == 1
        assert "process_resident_memory_bytes" in scrape.families

    def test_two_routers_in_one_process_share_nothing(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        other = Metrics(dict)
        finish()
        assert Scrape(other)("completion_tokens_total") == 0

    def test_it_can_run_in_a_thread_while_requests_are_counted(
        self, metrics: Metrics, finish: Callable[..., None]
    ) -> None:
        stop = threading.Event()

        def scrape() -> None:
            while not stop.is_set():
                metrics.render()

        with ThreadPoolExecutor(1) as executor:
            scraping = executor.submit(scrape)
            for turn in range(200):
                metrics.set_backends([BackendName(f"b{turn + n}") for n in range(10)])
                for n in range(10):
                    name = BackendName(f"b{turn + n}")
                    finish(backend=name, home=name, reason=list(Reason)[n], status=200 + 100 * (n % 4))
                    metrics.backend_changed(changed(name, list(BackendState)[n % 5]))
            stop.set()
            scraping.result()


class TestReloads:
    def test_the_start_is_the_first_configuration_in_force(self, metrics: Metrics) -> None:
        scrape = Scrape(metrics)
        assert scrape("config_last_reload_success") == 1
        assert scrape("config_reloads_total", result="success") == 0
        assert scrape("config_reloads_total", result="failure") == 0
        assert scrape("config_last_reload_success_timestamp_seconds") == metrics.configured_at > 0

    def test_a_refused_one_is_a_failure_until_the_next_good_one(self, metrics: Metrics) -> None:
        metrics.configured_at = 1.0
        metrics.configuration_reloaded(success=False)
        scrape = Scrape(metrics)
        assert scrape("config_last_reload_success") == 0
        assert scrape("config_reloads_total", result="failure") == 1
        assert scrape("config_last_reload_success_timestamp_seconds") == 1
        metrics.configuration_reloaded(success=True)
        scrape = Scrape(metrics)
        assert scrape("config_last_reload_success") == 1
        assert scrape("config_reloads_total", result="success") == 1
        assert (scrape("config_last_reload_success_timestamp_seconds") or 0) > 1


def test_who_drains_and_how_much_runs_is_read_at_scrape_time() -> None:
    draining, active = {"b"}, [3]
    metrics = Metrics(dict, lambda: draining, lambda: active[0])
    metrics.set_backends([A, B])
    scrape = Scrape(metrics)
    assert (scrape("backend_draining", backend="a"), scrape("backend_draining", backend="b")) == (0, 1)
    assert scrape("active_requests") == 3
    draining.clear()
    active[0] = 0
    scrape = Scrape(metrics)
    assert (scrape("backend_draining", backend="b"), scrape("active_requests")) == (0, 0)


def test_how_keys_are_shared_is_read_at_scrape_time_and_only_of_those_that_are_exported() -> None:
    shares = {A: 0.25, B: 0.75}
    metrics = Metrics(dict, key_shares=lambda: shares)
    metrics.set_backends([A])
    assert Scrape(metrics)("backend_key_share_ratio", backend="a") == 0.25
    assert Scrape(metrics)("backend_key_share_ratio", backend="b") is None
    shares.clear()
    assert Scrape(metrics)("backend_key_share_ratio", backend="a") is None


def test_each_source_of_backends_says_how_it_does() -> None:
    statuses = [
        DiscoveryStatus("file", True, 2, 0, 1_700_000_000.5, None),
        DiscoveryStatus("dns", False, 0, 3, None, "vllm.test: A: timeout"),
    ]
    scrape = Scrape(Metrics(dict, discovery=lambda: statuses))
    seen = "discovery_last_success_timestamp_seconds"
    for source, expected in [("file", (1, 2, 0, 1_700_000_000.5)), ("dns", (0, 0, 3, None))]:
        names = ("discovery_up", "discovery_backends", "discovery_failures_total", seen)
        assert tuple(scrape(name, source=source) for name in names) == expected


def test_who_waits_is_counted_at_scrape_time() -> None:
    waiting = [2]
    metrics = Metrics(dict, waiting=lambda: waiting[0])
    assert Scrape(metrics)("waiting") == 2
    waiting[0] = 0
    assert Scrape(metrics)("waiting") == 0


def test_workers_and_their_deaths_are_read_when_they_are_asked_for(in_flight: dict[str, int]) -> None:
    assert Scrape(Metrics(lambda: in_flight))("workers") == 1
    scrape = Scrape(Metrics(lambda: in_flight, workers=lambda: (3, 2)))
    assert (scrape("workers"), scrape("worker_restarts_total")) == (3, 2)


def test_what_a_capture_has_lost_is_asked_for_at_each_scrape() -> None:
    lost = [3]
    metrics = Metrics(dict, capture_dropped=lambda: lost[0])
    assert Scrape(metrics)("capture_dropped_total") == 3
    lost[0] = 5
    assert Scrape(metrics)("capture_dropped_total") == 5
