"""The rules of the engine, one by one. Blocks are 4 tokens; times come from a profile made for counting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_router.engine.block_hash import hash_blocks, pack_token_ids
from prefix_router.engine.cost import PROFILES, CostProfile
from prefix_router.engine.engine import Engine
from prefix_router.engine.limits import EngineLimits
from prefix_router.engine.request import EngineRequest, RequestStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

BLOCK = 4
PROFILE = CostProfile("made up", 0.0, 1.0, 0.0, 0.0, 0.0, 1000.0, 0.0, 4000)
"""A millisecond for each prompt token, a second for each decoding sequence."""


def make_engine(blocks: int = 100, budget: int = 64, sequences: int = 8) -> Engine:
    return Engine(PROFILE, EngineLimits(BLOCK, budget, sequences), kv_tokens=blocks * BLOCK)


def make_request(prompt: int | Iterable[int], output: int = 1, future: Iterable[int] = ()) -> EngineRequest:
    """A request for token ids, or for that many that nobody else has."""
    ids = list(range(prompt)) if isinstance(prompt, int) else list(prompt)
    hashes = () if isinstance(prompt, int) else hash_blocks(pack_token_ids([*ids, *future]), BLOCK)
    return EngineRequest(len(ids), output, hashes)


def run(engine: Engine, *requests: EngineRequest) -> None:
    for request in requests:
        engine.add(request)
    while engine.step() is not None:
        pass


def prefilled(engine: Engine) -> dict[EngineRequest, int]:
    """Schedule a step and return the prompt tokens that it computes."""
    engine.start_step()
    return {request: request.chunk_tokens for request in engine._prefilling if request.chunk_tokens}


# The life of one request.


def test_an_idle_engine_has_nothing_to_step() -> None:
    engine = make_engine()
    assert not engine.has_work
    assert engine.step() is None
    assert engine.start_step() is None


def test_a_request_gets_its_first_token_from_its_prefill_and_one_more_each_step() -> None:
    engine = make_engine()
    request = make_request(10, output=3)
    engine.add(request)

    first = engine.step()
    assert first is not None
    assert (first.first_tokens, first.advanced, first.finished) == ([request], [request], [])
    assert first.duration_seconds == pytest.approx(0.010)

    second = engine.step()
    assert second is not None
    assert (second.first_tokens, second.advanced, second.finished) == ([], [request], [])
    assert second.duration_seconds == pytest.approx(1.0)

    third = engine.step()
    assert third is not None
    assert (third.advanced, third.finished) == ([request], [request])
    assert request.status is RequestStatus.FINISHED
    assert request.generated_tokens == 3
    assert engine.step() is None


def test_a_request_for_one_token_ends_with_its_prefill() -> None:
    engine = make_engine()
    request = make_request(10, output=1)
    engine.add(request)
    result = engine.step()
    assert result is not None
    assert result.first_tokens == result.finished == [request]
    assert not engine.has_work


def test_a_request_is_running_while_its_step_is_in_progress() -> None:
    engine = make_engine()
    engine.add(make_request(10, output=1))
    assert (engine.running, engine.waiting) == (0, 1)
    engine.start_step()
    assert (engine.running, engine.waiting) == (1, 0)
    engine.finish_step()
    assert (engine.running, engine.waiting) == (0, 0)


def test_steps_begin_and_end_in_turn() -> None:
    engine = make_engine()
    with pytest.raises(RuntimeError, match="no step is in progress"):
        engine.finish_step()
    engine.add(make_request(10))
    engine.start_step()
    with pytest.raises(RuntimeError, match="a step is in progress"):
        engine.start_step()


def test_usage_is_what_running_requests_hold_and_not_what_is_cached() -> None:
    engine = make_engine(blocks=10)
    engine.add(make_request(range(8), output=1))
    engine.start_step()
    assert engine.kv_usage == pytest.approx(0.2)
    engine.finish_step()
    assert engine.kv_usage == 0.0


def test_a_sequence_takes_a_block_only_when_its_last_one_is_full() -> None:
    engine = make_engine(blocks=10)
    engine.add(make_request(6, output=8))
    held = []
    while engine.start_step() is not None:
        held.append(round(engine.kv_usage * 10))
        engine.finish_step()
    # What is computed when each step ends: 6 tokens, then one more with each token after the first.
    assert held == [-(-computed // BLOCK) for computed in range(6, 14)]


def test_a_request_that_can_never_fit_is_refused() -> None:
    engine = make_engine(blocks=10)
    engine.add(make_request(36, output=4))
    with pytest.raises(ValueError, match="needs 11 KV blocks, the cache has 10"):
        engine.add(make_request(36, output=5))


def test_the_cache_is_as_large_as_the_profile_says() -> None:
    assert Engine(PROFILES["llama-3.1-70b-h100-tp8"]).total_blocks == 83_665


# The budget, the queue, the order.


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    engine = make_engine(budget=64)
    request = make_request(150)
    engine.add(request)
    chunks = []
    while engine.has_work:
        chunks.append(prefilled(engine)[request])
        engine.finish_step()
    assert chunks == [64, 64, 22]


def test_prompts_share_the_budget_in_the_order_they_came() -> None:
    engine = make_engine(budget=64)
    first, second, third = make_request(50), make_request(50), make_request(5)
    for request in (first, second, third):
        engine.add(request)
    assert prefilled(engine) == {first: 50, second: 14}
    engine.finish_step()
    assert prefilled(engine) == {second: 36, third: 5}


def test_decoding_sequences_take_their_token_before_any_prompt() -> None:
    engine = make_engine(budget=8, sequences=8)
    early = [make_request(1, output=9) for _ in range(3)]
    for request in early:
        engine.add(request)
    engine.step()
    late = make_request(30)
    engine.add(late)
    assert prefilled(engine) == {late: 5}
    assert engine.finish_step().advanced == early


def test_a_half_computed_prompt_goes_before_waiting_ones() -> None:
    engine = make_engine(budget=64)
    long, short = make_request(100), make_request(10)
    engine.add(long)
    engine.step()
    engine.add(short)
    assert prefilled(engine) == {long: 36, short: 10}


def test_no_more_sequences_run_than_allowed() -> None:
    engine = make_engine(sequences=2)
    requests = [make_request(4, output=2) for _ in range(3)]
    for request in requests:
        engine.add(request)
    engine.step()
    assert (engine.running, engine.waiting) == (2, 1)
    engine.step()
    assert list(prefilled(engine)) == [requests[2]]


def test_nobody_overtakes_a_request_that_does_not_fit_yet() -> None:
    engine = make_engine(blocks=10)
    holder = make_request(24, output=8)
    large, small = make_request(20), make_request(4)
    run_first = [holder, large, small]
    for request in run_first:
        engine.add(request)
    assert list(prefilled(engine)) == [holder]
    assert engine.waiting == 2
    engine.finish_step()
    finished: list[EngineRequest] = []
    while (result := engine.step()) is not None:
        finished += result.finished
    assert finished == run_first


def test_a_prompt_is_admitted_only_when_all_of_it_fits_though_it_starts_with_a_chunk() -> None:
    engine = make_engine(blocks=30, budget=16)
    holder = make_request(60, output=20)
    engine.add(holder)
    for _ in range(4):
        engine.step()
    late = make_request(64)
    engine.add(late)
    engine.step()
    assert late.status is RequestStatus.WAITING


# The prefix cache.


def test_a_second_request_hits_the_full_blocks_of_the_shared_beginning() -> None:
    engine = make_engine()
    run(engine, make_request([*range(10), 97, 98, 99]))
    second = make_request([*range(10), 55, 56, 57])
    run(engine, second)
    assert second.cached_tokens == 8


@pytest.mark.parametrize(("prompt", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8)])
def test_the_last_token_is_always_computed(prompt: int, cached: int) -> None:
    engine = make_engine()
    run(engine, make_request(range(prompt)))
    again = make_request(range(prompt))
    run(engine, again)
    assert again.cached_tokens == cached


def test_a_hit_saves_the_time_of_its_tokens() -> None:
    engine = make_engine()
    run(engine, make_request(range(41)))
    engine.add(make_request(range(41)))
    assert engine.start_step() == pytest.approx(0.001)


def test_counters_count_tokens_once_for_each_request() -> None:
    engine = make_engine()
    run(engine, make_request(range(13), output=2), make_request(range(50, 60), output=3))
    run(engine, make_request(range(13), output=2))
    counters = engine.counters
    assert counters.prefix_cache_query_tokens == counters.prompt_tokens == 13 + 10 + 13
    assert counters.prefix_cache_hit_tokens == 12
    assert counters.hit_rate == pytest.approx(12 / 36)
    assert counters.generated_tokens == 2 + 3 + 2
    assert counters.finished_requests == 3


def test_blocks_are_reusable_by_the_next_in_line_of_the_step_that_computes_them() -> None:
    engine = make_engine(budget=64)
    first, together, later = (make_request(range(17)) for _ in range(3))
    engine.add(first)
    engine.add(together)
    engine.start_step()
    engine.add(later)
    engine.finish_step()
    engine.step()
    assert (first.cached_tokens, together.cached_tokens, later.cached_tokens) == (0, 16, 16)


def test_what_is_shared_within_a_step_is_computed_once() -> None:
    engine = make_engine(budget=64)
    first, together = make_request(range(17)), make_request(range(17))
    engine.add(first)
    engine.add(together)
    assert prefilled(engine) == {first: 17, together: 1}


def test_a_prefix_is_reusable_as_far_as_its_computation_is_scheduled() -> None:
    engine = make_engine(budget=64)
    first, second = make_request(range(100)), make_request(range(100))
    engine.add(first)
    engine.step()
    engine.add(second)
    # The step computes the last 36 tokens of the first, so the second hits them as well.
    assert prefilled(engine) == {first: 36, second: 4}
    assert second.cached_tokens == 96


def test_generated_tokens_are_reusable_except_the_last() -> None:
    engine = make_engine()
    run(engine, make_request(range(6), output=7, future=range(6, 13)))
    follow_up = make_request(range(30))
    run(engine, follow_up)
    # 6 + 7 tokens were seen, the KV of 12 was computed: three full blocks.
    assert follow_up.cached_tokens == 12


def test_a_block_that_only_the_last_generated_token_would_fill_is_not_reusable() -> None:
    engine = make_engine()
    run(engine, make_request(range(6), output=6, future=range(6, 12)))
    follow_up = make_request(range(30))
    run(engine, follow_up)
    assert follow_up.cached_tokens == 8


def test_an_aborted_request_leaves_what_it_has_computed() -> None:
    engine = make_engine(budget=64)
    gone = make_request(range(100))
    engine.add(gone)
    engine.step()
    engine.abort(gone)
    second = make_request(range(100))
    run(engine, second)
    assert second.cached_tokens == 64


def test_a_small_cache_forgets_the_older_prompt() -> None:
    engine = make_engine(blocks=10)
    run(engine, make_request(range(100, 124)))
    run(engine, make_request(range(200, 224)))
    newer, older = make_request(range(200, 224)), make_request(range(100, 124))
    run(engine, newer)
    run(engine, older)
    assert newer.cached_tokens == 20
    assert older.cached_tokens < 20


def test_a_reset_makes_the_cache_cold() -> None:
    engine = make_engine()
    run(engine, make_request(range(20)))
    assert engine.reset_prefix_cache()
    again = make_request(range(20))
    run(engine, again)
    assert again.cached_tokens == 0


def test_a_reset_is_refused_while_a_request_runs() -> None:
    engine = make_engine()
    engine.add(make_request(range(20), output=2))
    engine.step()
    assert not engine.reset_prefix_cache()


# Preemption.


def run_until_preemption(engine: Engine, *requests: EngineRequest) -> None:
    for request in requests:
        engine.add(request)
    while not engine.counters.preemptions:
        assert engine.step() is not None, "the requests finished without a preemption"


def preempt_one() -> tuple[Engine, EngineRequest, EngineRequest]:
    """Two requests whose outputs do not fit side by side, at the moment the newer one has lost its blocks."""
    engine = make_engine(blocks=10)
    older = make_request(range(16), output=16)
    newer = make_request(range(50, 66), output=16)
    run_until_preemption(engine, older, newer)
    return engine, older, newer


def test_when_no_block_is_free_the_newest_request_is_preempted() -> None:
    engine, older, newer = preempt_one()
    assert older.status is RequestStatus.RUNNING
    assert newer.status is RequestStatus.WAITING
    assert (engine.running, engine.waiting) == (1, 1)


def test_a_preempted_request_keeps_its_output_and_finishes_it() -> None:
    engine, older, newer = preempt_one()
    assert newer.generated_tokens > 0
    run(engine)
    assert older.generated_tokens == newer.generated_tokens == 16
    assert newer.preemptions == 1
    assert newer.status is RequestStatus.FINISHED


def test_a_preempted_request_goes_before_all_that_wait() -> None:
    engine = make_engine(blocks=10, sequences=2)
    older, newer = make_request(range(16), output=16), make_request(range(50, 66), output=16)
    patient = make_request(1)
    run_until_preemption(engine, older, newer, patient)
    finished: list[EngineRequest] = []
    while (result := engine.step()) is not None:
        finished += result.finished
        assert patient.status is RequestStatus.WAITING or newer.status is not RequestStatus.WAITING
    assert set(finished) == {older, newer, patient}


def test_recomputing_does_not_count_as_a_query_or_change_what_was_cached() -> None:
    engine, _older, newer = preempt_one()
    run(engine)
    assert engine.counters.prefix_cache_query_tokens == 32
    assert newer.cached_tokens == 0
    assert engine.counters.prompt_tokens == 32


def test_nobody_is_admitted_into_the_blocks_that_a_preemption_has_freed() -> None:
    engine = make_engine(blocks=10)
    run_until_preemption(engine, make_request(range(16), output=16), make_request(range(50, 66), output=16))
    late = make_request(1)
    engine.add(late)
    engine.start_step()
    assert late.status is RequestStatus.WAITING


def test_a_half_computed_prompt_yields_to_the_output_of_older_requests() -> None:
    engine = make_engine(blocks=14, budget=8, sequences=4)
    older = [make_request(8, output=20), make_request(8, output=20)]
    younger = make_request(30)
    run_until_preemption(engine, *older, younger)
    assert younger.preemptions == 1
    assert younger.generated_tokens == 0
    run(engine)
    assert [request.preemptions for request in older] == [0, 0]
    assert [request.generated_tokens for request in (*older, younger)] == [20, 20, 1]


# Aborting.


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_aborted_request_frees_its_blocks_at_once(steps: int) -> None:
    engine = make_engine(budget=64)
    request = make_request(range(70), output=5)
    engine.add(request)
    for _ in range(steps):
        engine.step()
    assert engine.abort(request)
    assert request.status is RequestStatus.ABORTED
    assert not engine.has_work
    assert engine.kv_usage == 0.0
    assert engine.counters.aborted_requests == 1


@pytest.mark.parametrize("decoding", [False, True])
def test_a_request_can_be_aborted_in_the_middle_of_a_step(decoding: bool) -> None:
    engine = make_engine()
    stays, goes = make_request(range(8), output=5), make_request(range(50, 58), output=5)
    engine.add(stays)
    engine.add(goes)
    if decoding:
        engine.step()
    engine.start_step()
    engine.abort(goes)
    assert engine.finish_step().advanced == [stays]
    run(engine)
    assert stays.generated_tokens == 5
    assert engine.kv_usage == 0.0


def test_aborting_a_request_that_has_ended_does_nothing() -> None:
    engine = make_engine()
    request = make_request(5)
    run(engine, request)
    assert not engine.abort(request)
    assert request.status is RequestStatus.FINISHED


def test_an_aborted_decoder_no_longer_costs_time() -> None:
    engine = make_engine()
    requests = [make_request(4, output=9) for _ in range(3)]
    for request in requests:
        engine.add(request)
    engine.step()
    engine.abort(requests[1])
    assert engine.start_step() == pytest.approx(2.0)


# All of it together.

PROMPTS = st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 12))


@settings(max_examples=150, deadline=None)
@given(
    blocks=st.integers(13, 30),
    budget=st.integers(4, 40),
    arrivals=st.lists(st.tuples(PROMPTS, st.integers(0, 3), st.booleans()), max_size=25),
)
def test_every_request_ends_once_and_everything_is_free_again(
    blocks: int,
    budget: int,
    arrivals: list[tuple[tuple[int, int, int], int, bool]],
) -> None:
    """Arrivals, aborts and a cache small enough for preemption, in any order."""
    engine = make_engine(blocks, budget, sequences=4)
    alive: list[EngineRequest] = []
    ended: list[EngineRequest] = []
    aborted = 0

    def step() -> None:
        duration = engine.start_step()
        if duration is None:
            return
        assert duration > 0
        assert len(engine._decoding) + sum(r.chunk_tokens for r in engine._prefilling) <= budget
        assert engine.running <= 4
        assert len(engine._prefilling) <= 1 or all(r.chunk_tokens for r in engine._prefilling)
        held = {block for r in engine._decoding + engine._prefilling for block in r.blocks}
        assert engine.kv_usage == pytest.approx(len(held) / blocks)
        assert engine._decoding_tokens == sum(r.total_tokens for r in engine._decoding)
        result = engine.finish_step()
        ended.extend(result.finished)
        assert engine._decoding_tokens == sum(r.total_tokens for r in engine._decoding)

    for (family, prompt, output), steps, abort in arrivals:
        request = make_request(range(family * 1000, family * 1000 + prompt), output)
        engine.add(request)
        alive.append(request)
        for _ in range(steps):
            step()
        if abort:
            aborted += engine.abort(alive[len(alive) // 2])
    for _ in range(5000):
        if not engine.has_work:
            break
        step()

    assert not engine.has_work
    assert engine.kv_usage == 0.0
    assert engine.reset_prefix_cache()
    assert len(ended) == len(set(ended)) == len(alive) - aborted
    assert all(request.generated_tokens == request.output_tokens for request in ended)
    assert all(request.cached_tokens < request.prompt_tokens for request in alive)
    assert engine.counters.finished_requests == len(ended)
    assert engine.counters.aborted_requests == aborted
