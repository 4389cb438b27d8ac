"""Workloads whose requests are turns of conversations."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from statistics import mean, median
from typing import TYPE_CHECKING

import pytest

from prefix_router.fleetsim.capacity import ideal_work
from prefix_router.fleetsim.keys import name_blocks
from prefix_router.fleetsim.request import SimulatedRequest
from prefix_router.fleetsim.workloads.catalogue import generate, parse_workload
from prefix_router.fleetsim.workloads.conversations import Turn, interleave
from prefix_router.fleetsim.workloads.text import EMPTY, TextSource

if TYPE_CHECKING:
    from collections.abc import Iterator


def requests_of(text: str, count: int, seed: int = 1) -> list[SimulatedRequest]:
    return generate(parse_workload(text), count, seed)


def by_session(requests: list[SimulatedRequest]) -> list[list[SimulatedRequest]]:
    sessions: dict[str | None, list[SimulatedRequest]] = {}
    for request in requests:
        sessions.setdefault(request.session, []).append(request)
    return list(sessions.values())


# Texts.


def test_texts_that_continue_the_same_one_share_its_whole_blocks_only() -> None:
    source = TextSource()
    start = source.new(40)
    one, other = source.after(start, 10), source.after(start, 10)
    assert (one.tokens, len(one.blocks), len(start.blocks)) == (50, 4, 3)
    assert one.blocks[:2] == other.blocks[:2] == start.blocks[:2]
    assert not set(one.blocks[2:]) & set(other.blocks[2:])
    assert start.blocks[2] not in one.blocks + other.blocks


def test_nothing_more_is_the_same_text() -> None:
    source = TextSource()
    start = source.new(40)
    assert source.after(start, 0) is start
    assert source.new(0) == EMPTY


# Who talks when.


def converse(pauses: list[float], session: str) -> Iterator[Turn]:
    seconds = 0.0
    for pause in pauses:
        yield Turn(SimulatedRequest(seconds, (1,), 16, 1, session), pause)
        seconds += pause


def test_whoever_ends_a_conversation_begins_the_next_after_its_pause() -> None:
    names = iter("abc")
    requests = interleave(lambda: converse([2.0, 5.0], next(names)), 1, 5, Random(1), pause_seconds=1.0)
    start = requests[0].arrival_seconds
    assert 0 <= start <= 1
    assert [request.session for request in requests] == ["a", "a", "b", "b", "c"]
    assert [request.arrival_seconds - start for request in requests] == pytest.approx([0, 2, 7, 9, 14])


def test_when_there_are_no_more_conversations_there_are_fewer_requests() -> None:
    talks = iter([converse([1.0], "a"), converse([1.0, 1.0], "b")])
    requests = interleave(lambda: next(talks, None), 5, 100, Random(1), pause_seconds=1.0)
    assert sorted(request.session or "" for request in requests) == ["a", "b", "b"]


# Chats.


def test_a_turn_repeats_everything_before_it() -> None:
    sessions = [turns for turns in by_session(requests_of("chat", 600)) if len(turns) > 1]
    assert sessions
    for turns in sessions:
        for earlier, later in pairwise(turns):
            known = name_blocks(earlier)
            whole = (earlier.prompt_tokens + earlier.output_tokens) // 16
            assert name_blocks(later)[:whole] == known[:whole]
            assert later.prompt_tokens > earlier.prompt_tokens + earlier.output_tokens
            assert later.user_turn_tokens == earlier.user_turn_tokens


def test_all_chats_share_the_system_prompt_and_nothing_else() -> None:
    sessions = by_session(requests_of("chat", 600))
    firsts = [turns[0].blocks for turns in sessions]
    assert len({blocks[: 1500 // 16] for blocks in firsts}) == 1
    rest = Counter(block for blocks in firsts for block in blocks[1500 // 16 :])
    assert set(rest.values()) == {1}


def test_chats_have_about_the_turns_pauses_and_lengths_that_were_asked_for() -> None:
    requests = requests_of("chat", 4000)
    sessions = by_session(requests)
    # The mean is six, but the last conversations are cut off by the end of the workload.
    assert 2.5 < mean(len(turns) for turns in sessions) < 6
    assert all(len(turns) == 1 for turns in by_session(requests_of("chat:turns=1", 200)))
    pauses = [
        later.arrival_seconds - earlier.arrival_seconds
        for turns in sessions
        for earlier, later in pairwise(turns)
    ]
    assert 11 < median(pauses) < 19
    assert 170 < median(request.output_tokens for request in requests) < 230


def test_a_chat_comes_at_a_steady_rate_from_the_beginning() -> None:
    requests = requests_of("chat", 3000)
    end = requests[-1].arrival_seconds
    quarters = Counter(min(int(4 * request.arrival_seconds / end), 3) for request in requests)
    assert all(500 < quarters[quarter] < 1000 for quarter in range(4))


def test_short_chats_stay_below_their_limit_and_reuse_most_of_their_tokens() -> None:
    requests = requests_of("short_chats", 3000)
    assert max(request.prompt_tokens for request in requests) <= 1024
    assert len([turns for turns in by_session(requests) if len(turns) > 2]) > 100
    assert 0.7 < ideal_work(requests).hit_rate < 0.9
    assert max(request.prompt_tokens for request in requests_of("short_chats:most_tokens=400", 500)) <= 400


# Agents.


def test_agents_begin_with_one_of_a_few_long_preambles() -> None:
    requests = requests_of("agents", 800)
    preambles = {request.blocks[: 14_900 // 16] for request in requests if request.prompt_tokens >= 14_900}
    own = {blocks[0] for blocks in preambles}
    assert 2 <= len(own) <= 9  # eight, and that of sub-agents


def test_agents_take_many_small_steps_and_find_nearly_everything_cached() -> None:
    requests = requests_of("agents", 3000)
    assert ideal_work(requests).hit_rate > 0.9
    assert 170 < median(request.output_tokens for request in requests) < 270
    assert 25_000 < mean(request.prompt_tokens for request in requests) < 80_000


def test_the_context_of_an_agent_is_bounded_and_then_begins_anew() -> None:
    requests = requests_of("agents:context_tokens=30000,subagent_share=0", 800)
    assert max(request.prompt_tokens for request in requests) <= 30_000
    shorter = [
        later
        for turns in by_session(requests)
        for earlier, later in pairwise(turns)
        if later.prompt_tokens < earlier.prompt_tokens
    ]
    assert shorter


def test_subagents_work_beside_their_agent_with_a_preamble_of_their_own() -> None:
    requests = requests_of("agents:subagent_share=1,subagents=3", 2000)
    sessions = by_session(requests)
    first_blocks = [{turn.blocks[0] for turn in turns} for turns in sessions]
    with_subagents = [blocks for blocks in first_blocks if len(blocks) == 2]
    assert with_subagents
    assert len(set[int].intersection(*with_subagents)) == 1
    alone = by_session(requests_of("agents:subagent_share=0", 500))
    assert all(len({turn.blocks[0] for turn in turns}) == 1 for turns in alone)
