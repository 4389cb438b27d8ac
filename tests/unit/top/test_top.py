from __future__ import annotations

import argparse
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from prefix_router.top.command import add_arguments, pressed, run
from prefix_router.top.view import Screen, Sort, lines


def backend(name: str, **fields: Any) -> dict[str, Any]:
    usual = {"name": name, "state": "healthy", "draining": False, "in_flight": 3, "max_in_flight": None}
    return {**usual, "engine": {"kv_cache_usage_ratio": 0.5}, **fields}


def status(*backends: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "1", "strategy": "prefix_aware", "uptime_seconds": 7500.0, "active_requests": 4,
        "waiting_requests": 0, "concurrency_threshold": 64, "backends": list(backends),
    }  # fmt: skip


def history(**requests: int) -> dict[str, Any]:
    def recent(count: int) -> dict[str, Any]:
        return {"requests": count, "errors": 1, "hit_rate": 0.75, "first_token_seconds": [0.1, 0.2, 1.5]}

    return {
        "recent_seconds": 300.0,
        "fleet": {"recent": recent(sum(requests.values()))},
        "backends": {name: {"recent": recent(count)} for name, count in requests.items()},
    }


def names(shown: list[str]) -> list[str]:
    return [line.split()[0] for line in shown[4:]]


def test_a_snapshot_tells_fleet_and_backends() -> None:
    shown = lines(status(backend("a"), backend("b")), history(a=225, b=75), Screen())
    assert shown[0] == "prefix-router 1  prefix_aware  up 2 h 5 min"
    assert shown[1].startswith("1.0 req/s  hits 75%")
    assert "P50 100ms  P90 200ms  P99 1.5s" in shown[2]
    assert shown[4].split() == ["a", "healthy", "3/64", "75%", "75%", "100ms", "200ms", "1.5s", "50%"]


def test_nothing_known_is_a_dash() -> None:
    shown = lines(status(backend("a", engine=None)), {}, Screen())
    assert shown[4].split()[3:] == ["–"] * 6


def test_an_empty_fleet_says_what_to_do() -> None:
    assert "no backends" in lines(status(), {}, Screen())[-1]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (10, 3), (1, 1)])
def test_it_fits_any_screen(width: int, height: int) -> None:
    fleet = status(*(backend(f"backend-number-{at:03d}-long") for at in range(40)))
    shown = lines(fleet, {}, Screen(width=width, height=height))
    assert len(shown) <= height
    assert all(len(line) <= width for line in shown)


def test_a_name_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in "".join(lines(status(backend("a\x1b[2Jb\n")), {}, Screen()))


def test_without_colour_there_is_none_and_with_it_words_stay() -> None:
    fleet = status(backend("a", state="down"))
    assert "\x1b" not in "".join(lines(fleet, {}, Screen()))
    assert "\x1b[31m" in lines(fleet, {}, Screen(colour=True))[4]
    assert "down" in lines(fleet, {}, Screen(colour=True))[4]


@pytest.mark.parametrize(
    ("sort", "order"),
    [(Sort.NAME, "abc"), (Sort.STATE, "cba"), (Sort.IN_FLIGHT, "bac"), (Sort.REQUESTS, "cab")],
)
def test_backends_are_sorted_worst_or_busiest_first(sort: Sort, order: str) -> None:
    fleet = status(
        backend("a", in_flight=5), backend("b", in_flight=9, draining=True), backend("c", state="down")
    )
    assert names(lines(fleet, history(a=5, b=1, c=9), Screen(sort=sort))) == list(order)


def test_numbers_in_names_count_as_numbers() -> None:
    fleet = status(backend("gpu-10"), backend("gpu-9"))
    assert names(lines(fleet, {}, Screen())) == ["gpu-9", "gpu-10"]


def test_the_last_line_says_how_to_quit_on_any_usual_screen() -> None:
    assert "q quit" in lines(status(*(backend(f"b{at}") for at in range(40))), {}, Screen(80, 24))[-1]


def test_old_numbers_are_called_old() -> None:
    assert lines(status(), {}, Screen(trouble="refused"))[0].startswith(
        "NOT REACHED, numbers are old: refused"
    )


def test_keys_scroll_within_the_fleet_sort_and_quit() -> None:
    screen = Screen(height=15)
    assert pressed("q", screen, 40) is None
    down = pressed("\x1b[B", screen, 40)
    assert down is not None
    assert down.first == 1
    paged = pressed("\x1b[6~", Screen(height=15, first=35), 40)
    assert paged is not None
    assert paged.first == 30
    top = pressed("k", screen, 40)
    assert top is not None
    assert top.first == 0
    by_tail = pressed("t", screen, 40)
    assert by_tail is not None
    assert by_tail.sort is Sort.TAIL


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


async def test_a_snapshot_of_a_listener_with_its_token(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    import asyncio

    sent = []

    async def answer(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Authorization"))
        return web.json_response(status(backend("a")) if request.path == "/status" else history(a=1))

    application = web.Application()
    application.add_routes([web.get("/status", answer), web.get("/history", answer)])
    token = tmp_path / "token"
    token.write_text("secret\n")
    async with TestServer(application) as server:
        arguments = parsed("--url", str(server.make_url("/")), "--json", "--token-file", str(token))
        assert await asyncio.to_thread(run, arguments) == 0
    assert json.loads(capsys.readouterr().out)["status"]["backends"][0]["name"] == "a"
    assert sent == ["Bearer secret"] * 2


def test_a_router_that_is_not_there_is_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(parsed("--url", "http://127.0.0.1:1")) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "nan", "x", "1e9"])
def test_an_interval_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--interval={text}")
