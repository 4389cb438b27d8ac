"""What `top` shows: documents and the size of a screen become lines of text. Pure.

Every line has at most `width` characters, and there are at most `height` of them; 0 means as many as it
takes.
Names come from outside: control characters in them are replaced, so that no name can steer the terminal.
O(backends).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

_WORST_FIRST: Final = ("down", "ejected", "half_open", "warming", "starting", "healthy")
_DIM, _BAD, _WARN, _STRONG = "2", "31", "33", "1"
_TITLES: Final = ("BACKEND", "STATE", "FLIGHT", "SHARE", "HITS", "P50", "P90", "P99", "KV")
NAME_WIDTH: Final = 20
HEAD_LINES: Final = 4


class Sort(Enum):
    """What the backends are sorted by. The values are the keys to press."""

    NAME = "n"
    STATE = "s"
    IN_FLIGHT = "f"
    REQUESTS = "r"
    HIT_RATE = "h"
    TAIL = "t"


@dataclass(frozen=True, slots=True)
class Screen:
    """How to show it. first: the first backend shown. trouble: why nothing is new, None when all is well."""

    width: int = 100
    height: int = 0
    first: int = 0
    sort: Sort = Sort.NAME
    colour: bool = False
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    backend: dict[str, Any]
    recent: dict[str, Any]

    @property
    def tail(self) -> float:
        found = self.recent.get("first_token_seconds")
        return -1.0 if found is None else float(found[-1])


_ORDER: Final[dict[Sort, Callable[[_Row], Any]]] = {
    Sort.NAME: lambda row: _natural(row.backend["name"]),
    Sort.STATE: lambda row: (_worst(row.backend["state"]), not row.backend["draining"]),
    Sort.IN_FLIGHT: lambda row: -row.backend["in_flight"],
    Sort.REQUESTS: lambda row: -row.recent.get("requests", 0),
    Sort.HIT_RATE: lambda row: row.recent.get("hit_rate") or 0.0,
    Sort.TAIL: lambda row: -row.tail,
}


def lines(status: dict[str, Any], history: dict[str, Any], screen: Screen) -> list[str]:
    """Return the screen, top to bottom."""
    rows = _rows(status, history, screen.sort)
    fitting = rows if not screen.height else rows[screen.first : screen.first + visible_rows(screen.height)]
    shown = [
        *_head(status, history, screen),
        _paint(_cut(_columns(*_TITLES), screen), _DIM, screen),
    ]
    if not rows:
        shown.append(_cut("no backends: write some under `backends:` and reload, or use discovery", screen))
    total = sum(row.recent.get("requests", 0) for row in rows)
    shown += [_backend_line(row, status, total, screen) for row in fitting]
    if screen.height:
        shown = shown[: screen.height - 1]
        shown.append(_paint(_cut(_foot(len(rows), len(fitting), screen), screen), _DIM, screen))
    return shown


def visible_rows(height: int) -> int:
    """Return how many backends fit on a screen of so many lines."""
    return max(height - HEAD_LINES - 1, 0)


def safe(text: str) -> str:
    """Replace what a terminal could take for a command."""
    return "".join(character if character.isprintable() else "·" for character in text)


def _rows(status: dict[str, Any], history: dict[str, Any], sort: Sort) -> list[_Row]:
    series = history.get("backends", {})
    rows = [_Row(each, series.get(each["name"], {}).get("recent", {})) for each in status["backends"]]
    return sorted(sorted(rows, key=_ORDER[Sort.NAME]), key=_ORDER[sort])


def _head(status: dict[str, Any], history: dict[str, Any], screen: Screen) -> list[str]:
    recent = history.get("fleet", {}).get("recent", {})
    seconds = min(history.get("recent_seconds", 300.0), max(status["uptime_seconds"], 1.0))
    p50, p90, p99 = recent.get("first_token_seconds") or (None, None, None)
    requests, errors = recent.get("requests", 0), recent.get("errors", 0)
    title = f"prefix-router {status['version']}  {status['strategy']}  up {_age(status['uptime_seconds'])}"
    if screen.trouble is None:
        first = _paint(_cut(title, screen), _STRONG, screen)
    else:
        first = _paint(_cut(f"NOT REACHED, numbers are old: {safe(screen.trouble)}", screen), _BAD, screen)
    return [
        first,
        _cut(
            f"{requests / seconds:.1f} req/s  hits {_percent(recent.get('hit_rate'))}  errors {errors}"
            f"  active {status['active_requests']}  waiting {status['waiting_requests']}",
            screen,
        ),
        _cut(f"TTFT P50 {_duration(p50)}  P90 {_duration(p90)}  P99 {_duration(p99)}  (5 minutes)", screen),
    ]


def _backend_line(row: _Row, status: dict[str, Any], total: int, screen: Screen) -> str:
    backend, engine = row.backend, row.backend.get("engine") or {}
    limit = backend["max_in_flight"] or status.get("concurrency_threshold")
    flight = f"{backend['in_flight']}/{limit}" if limit else str(backend["in_flight"])
    state = "draining" if backend["draining"] else backend["state"].replace("_", "-")
    p50, p90, p99 = row.recent.get("first_token_seconds") or (None, None, None)
    requests = row.recent.get("requests", 0)
    text = _columns(
        safe(backend["name"]), state, flight, _percent(requests / total if total else None),
        _percent(row.recent.get("hit_rate")), _duration(p50), _duration(p90), _duration(p99),
        _percent(engine.get("kv_cache_usage_ratio")),
    )  # fmt: skip
    colour = _BAD if backend["state"] == "down" else _WARN if state != "healthy" else ""
    return _paint(_cut(text, screen), colour, screen)


def _foot(count: int, shown: int, screen: Screen) -> str:
    part = f"{screen.first + 1}–{screen.first + shown} of {count}" if shown < count else str(count)
    by = screen.sort.name.lower().replace("_", " ")
    others = " ".join(f"{sort.value}:{sort.name.lower().partition('_')[0]}" for sort in Sort)
    return f"{part} by {by}  q quit  ↑↓ scroll  {others}"


def _columns(name: str, *rest: str) -> str:
    if len(name) > NAME_WIDTH:
        name = name[: NAME_WIDTH - 1] + "…"
    state, flight, *numbers = rest
    return f"{name:<{NAME_WIDTH}} {state:<9} {flight:>7}" + "".join(f"{number:>7}" for number in numbers)


def _cut(text: str, screen: Screen) -> str:
    return text if len(text) <= screen.width else text[: max(screen.width - 1, 0)] + "…"


def _paint(text: str, code: str, screen: Screen) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if screen.colour and code else text


def _natural(name: str) -> list[tuple[int, str]]:
    """So that gpu-10 comes after gpu-9."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d{1,18})", name)]


def _worst(state: str) -> int:
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else len(_WORST_FIRST)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f}%"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"


def _age(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
