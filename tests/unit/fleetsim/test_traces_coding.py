"""Traces of coding agents, made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefix_router.fleetsim.request import SimulatedRequest, check
from prefix_router.fleetsim.traces import TraceError, read_trace


def request(
    t: float, tokens: int, runs: list[list[int]], output: int = 10, kind: str = "n"
) -> dict[str, Any]:
    return {"t": t, "type": kind, "model": "m", "in": tokens, "out": output, "hr": runs}


def session(name: str, requests: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    row = {"id": name, "block_size": 64, "tool_tokens": 100, "system_tokens": 60, "requests": requests}
    return row | more


def read(path: Path, *rows: dict[str, Any], requests: int = 100) -> list[SimulatedRequest]:
    file = path / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = read_trace(str(file), requests)
    for made_request in made:
        check(made_request)
    return made


def of_session(requests: list[SimulatedRequest], name: str) -> list[SimulatedRequest]:
    return [request for request in requests if request.session == name]


def test_runs_of_ids_become_four_blocks_for_each(tmp_path: Path) -> None:
    first, second = read(
        tmp_path, session("a", [request(0, 200, [[1, 3]]), request(7, 330, [[1, 2], [9, 3]], 0, "s")])
    )
    assert (first.prompt_tokens, second.prompt_tokens) == (200, 330)
    assert (first.output_tokens, second.output_tokens) == (10, 1)
    assert second.arrival_seconds - first.arrival_seconds == 7
    assert (len(first.blocks), len(second.blocks)) == (13, 21)
    assert second.blocks[:8] == first.blocks[:8]
    assert not set(second.blocks[8:]) & set(first.blocks)
    assert len(set(second.blocks)) == 21


def test_sessions_share_their_preamble_when_tools_and_system_prompt_are_as_long(tmp_path: Path) -> None:
    turns = [request(0, 320, [[1, 5]])]
    requests = read(
        tmp_path,
        session("a", turns),
        session("b", [request(0, 320, [[11, 5]])]),
        session("c", turns, tool_tokens=101),
    )
    (one,), (same,), (other,) = (of_session(requests, name) for name in "abc")
    # 160 tokens are two whole blocks of 64.
    assert one.blocks[:8] == same.blocks[:8]
    assert not set(one.blocks[8:]) & set(same.blocks[8:])
    assert not set(one.blocks) & set(other.blocks)


def test_a_subagent_works_at_its_time_with_a_preamble_of_its_own(tmp_path: Path) -> None:
    agent = {
        "t": 20,
        "type": "subagent",
        "tool_tokens": 64,
        "system_tokens": 0,
        "requests": [request(0, 128, [[50, 2]]), request(5, 192, [[50, 3]])],
    }
    turns = [request(0, 192, [[1, 3]]), agent, request(40, 256, [[1, 4]])]
    requests = read(tmp_path, session("a", turns), session("b", turns))
    for name in "ab":
        own = of_session(requests, name)
        assert [turn.prompt_tokens for turn in own] == [192, 128, 192, 256]
        start = own[0].arrival_seconds
        assert [turn.arrival_seconds - start for turn in own] == pytest.approx([0, 20, 25, 40])
        assert own[2].blocks[:8] == own[1].blocks
    first, second = (of_session(requests, name) for name in "ab")
    assert first[1].blocks[:4] == second[1].blocks[:4]
    assert not set(first[1].blocks[4:]) & set(second[1].blocks[4:])
    assert not set(first[1].blocks) & set(first[0].blocks)


def test_a_pause_is_cut_to_five_minutes(tmp_path: Path) -> None:
    turns = [request(0, 64, [[1, 1]]), request(7200, 64, [[1, 1]]), request(7210, 64, [[1, 1]])]
    first, second, third = read(tmp_path, session("a", turns))
    assert second.arrival_seconds - first.arrival_seconds == pytest.approx(300)
    assert third.arrival_seconds - second.arrival_seconds == pytest.approx(10)


def test_as_many_agents_work_at_a_time_as_give_each_thirty_requests(tmp_path: Path) -> None:
    turns = [request(10 * number, 64, [[1, 1]]) for number in range(40)]
    requests = read(tmp_path, *(session(f"{number}", turns) for number in range(9)), requests=60)
    assert len(requests) == 60
    assert len({request.session for request in requests}) == 2


def test_every_session_is_read_once_when_more_requests_are_asked_for(tmp_path: Path) -> None:
    rows = [session(f"{number}", [request(0, 64, [[1, 1]])]) for number in range(5)]
    assert sorted(request.session or "" for request in read(tmp_path, *rows)) == list("01234")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (session("a", [], tool_tokens=-1), "line 2: Expected `int` >= 0 - at `$.tool_tokens`"),
        (session("a", []), "line 2: a session without requests"),
        (session("a", [request(0, 64, [[1, 1]])], block_size=32), "line 2: block_size must be 64, got 32"),
        (session("a", [request(0, 64, [[1, 2]])]), "line 2: 64 tokens do not have 2 full blocks"),
        (session("a", [request(0, 64, [[1]])]), "line 2: Expected `array` of length 2"),
        (session("a", [request(0, 64, [[1, 1]], kind="z")]), "line 2: Invalid value 'z'"),
    ],
)
def test_a_wrong_session_is_named_by_its_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError) as error:
        read(tmp_path, session("fine", [request(0, 64, [[1, 1]])]), row)
    assert message in str(error.value)
