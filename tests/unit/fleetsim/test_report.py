"""The HTML report and its pieces."""

from __future__ import annotations

import argparse
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from prefix_router.fleetsim.command.arguments import add_arguments, read_arguments
from prefix_router.fleetsim.command.comparison import Comparison
from prefix_router.fleetsim.command.scenario import Facts
from prefix_router.fleetsim.report.bars import bars
from prefix_router.fleetsim.report.findings import best, find
from prefix_router.fleetsim.report.page import as_page
from prefix_router.fleetsim.report.plot import format_milliseconds, milliseconds_axis, plot, share_axis
from prefix_router.fleetsim.report.tables import RESULTS, table

FACTS = Facts("sagemaker", 100, 8100.0, 32.0, 0.79, 93.0, 31.0)


def row(strategy: str, load: float, hit: float, p90: float | None, **more: Any) -> dict[str, Any]:
    times = {"p50": None if p90 is None else p90 / 2, "p90": p90, "p99": None if p90 is None else p90 * 2}
    return {
        "workload": "sagemaker",
        "strategy": strategy,
        "load": load,
        "routers": 1,
        "requests": 100,
        "failed": 0,
        "hit_rate": hit,
        "ttft_ms": times,
        "e2e_ms": times,
        "share_max": 0.2,
        "overflow_rate": 0.0,
        "throughput_tokens_per_second": 1000.0,
        "requests_per_second": load * 93,
        "ideal_hit_rate": 0.79,
    } | more


ROWS = [
    row("random", 0.5, 0.2, 1000.0),
    row("prefix_aware", 0.5, 0.7, 400.0),
    row("random", 1.0, 0.2, 20_000.0),
    row("prefix_aware", 1.0, 0.6, 5000.0),
]


def comparison(*flags: str) -> Comparison:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return read_arguments(parser.parse_args(["--strategies", "random,prefix_aware", *flags]))


def page(rows: list[dict[str, Any]] = ROWS, *flags: str) -> str:
    loads = ",".join(str(load) for load in dict.fromkeys(row["load"] for row in rows))
    return as_page(comparison("--load", loads, *flags), [FACTS], rows)


class Checker(HTMLParser):
    """Counts elements, and notices those that are not closed or would fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.fetched: list[tuple[str, str | None]] = []
        self.classes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.classes += (dict(attrs).get("class") or "").split()
        self.fetched += [(name, value) for name, value in attrs if name in ("src", "href", "data", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    return checker


# The page.


def test_the_page_is_well_formed_and_fetches_nothing() -> None:
    html = page()
    checker = checked(html)
    assert checker.fetched == []
    assert not {"script", "link", "img", "iframe"} & set(checker.seen)
    assert "url(" not in html
    assert "http" not in html
    assert html.startswith("<!DOCTYPE html>")


def test_every_workload_has_two_tables_and_four_plots() -> None:
    other = [{**row, "workload": "chat"} for row in ROWS]
    html = as_page(comparison("--load", "0.5,1"), [FACTS, FACTS], ROWS + other)
    checker = checked(html)
    assert checker.seen.count("table") == 4
    assert checker.seen.count("figure") == 8


def test_the_page_has_a_dark_side() -> None:
    assert "@media (prefers-color-scheme: dark)" in page()


def test_the_headline_says_who_is_first_and_by_how_much() -> None:
    html = page()
    assert "<h1>prefix_aware brings the first token soonest in 2 of 2 cases</h1>" in html
    assert "<b>20% → 65%</b>" in html
    assert "<b>−68%</b>" in html  # the median of -60% and -75%


def test_the_headline_does_not_hide_who_is_ahead_elsewhere() -> None:
    rows = [*ROWS[:2], row("random", 0.7, 0.2, 10.0), row("prefix_aware", 0.7, 0.2, 20.0), *ROWS[2:]]
    html = page(rows)
    assert "prefix_aware brings the first token soonest in 2 of 3 cases" in html
    assert "Ahead in the others: random in 1." in html


def test_where_the_baseline_is_first_nothing_is_said_to_be_gained() -> None:
    html = page([row("random", 0.5, 0.2, 10.0), row("prefix_aware", 0.5, 0.7, 20.0)])
    assert "<h1>random brings the first token soonest</h1>" in html
    assert 'class="tiles"' not in html


def test_the_command_and_the_caveats_are_there() -> None:
    html = page(ROWS, "--workload", "hot_prefix:share=0.3", "--events", "leave@9:1", "--seed", "5")
    assert "prefix-router simulate --workload hot_prefix:share=0.3 --strategies random,prefix_aware" in html
    assert "--seed 5 --events leave@9:1" in html
    assert "Everything here is simulated" in html
    assert "leave of replica 1 at 9 s" in html


def test_squeezed_time_is_a_caveat_only_where_it_was_squeezed() -> None:
    assert "sagemaker 3 times" in page()
    assert "squeezed" not in page([row("random", 0.2, 0.2, 10.0), row("prefix_aware", 0.2, 0.7, 20.0)])


def test_names_cannot_break_the_page() -> None:
    facts = Facts("<b>&", 100, 1.0, 1.0, 0.5, 10.0, 0.0)
    html = as_page(comparison("--load", "0.5,1"), [facts], ROWS)
    checked(html)
    assert "<h2>&lt;b&gt;&amp;</h2>" in html
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)


def test_one_load_is_shown_as_bars() -> None:
    html = page(ROWS[:2])
    assert "<polyline" not in html
    assert html.count('class="track"') == 8


def test_a_strategy_without_answers_has_a_dash() -> None:
    html = page([*ROWS[:2], row("random", 1.0, 0.0, None, failed=100), row("prefix_aware", 1.0, 0.5, 90.0)])
    checked(html)
    assert "<td>-</td>" in html
    nobody = [
        row(name, load, 0.0, None, failed=100) for load in (0.5, 1) for name in ("random", "prefix_aware")
    ]
    checked(page(nobody))


# Tables.


def test_the_best_of_each_column_is_marked_for_eyes_and_for_readers() -> None:
    html = table("caption", ROWS, RESULTS)
    marked = re.findall(r'<td class="best[^"]*">([^<]+)<span class="hidden"> \(best\)</span>', html)
    assert marked == ["70.0%", "200", "400", "800", "60.0%", "2,500", "5,000", "10 s"]


def test_equal_values_are_both_the_best() -> None:
    assert best([row("a", 1, 0.5, 10.0), row("b", 1, 0.5, 11.0)], "hit_rate") == {"a", "b"}


def test_whoever_fails_requests_is_not_the_best() -> None:
    rows = [row("a", 1, 0.5, 10.0, failed=9), row("b", 1, 0.5, 11.0, failed=3)]
    assert best(rows, "ttft_ms", "p90") == {"b"}
    rows = [row("a", 1, 0.5, 10.0, failed=8), row("b", 1, 0.5, 11.0, failed=3)]
    assert best(rows, "ttft_ms", "p90") == {"a"}


def test_nobody_is_the_best_of_nothing() -> None:
    assert best([row("a", 1, 0.0, None), row("b", 1, 0.0, None)], "ttft_ms", "p90") == set()
    assert find([row("a", 1, 0.0, None), row("b", 1, 0.0, None)], "a").leader == "a"


# Plots.


def test_a_plot_has_a_title_a_line_for_each_strategy_and_a_title_for_each_mark() -> None:
    svg = plot("P50 & all", [0.5, 1.0], {"a": [10.0, 20.0], "b": [30.0, None]}, milliseconds_axis([10, 30]))
    root = ElementTree.fromstring(svg)
    assert root.attrib["role"] == "img"
    titles = [element.text for element in root.iter("title")]
    assert titles == ["P50 & all", "a at load 0.5: 10 ms", "a at load 1: 20 ms", "b at load 0.5: 30 ms"]
    assert len(list(root.iter("polyline"))) == 1


def test_higher_values_are_higher_up_and_higher_loads_further_right() -> None:
    svg = plot("t", [1.0, 0.5], {"a": [0.9, 0.1]}, share_axis(), ("ideal", 0.95))
    (low, high) = [
        (float(mark.attrib["cx"]), float(mark.attrib["cy"]))
        for mark in ElementTree.fromstring(svg).iter("circle")
    ]
    assert low[0] < high[0]
    assert low[1] > high[1]
    assert ">ideal</text>" in svg


@pytest.mark.parametrize("values", [[38.0, 43_000.0], [1.0], [10.0], [0.4, 0.5], [99.0, 101.0], [5.0, 5.0]])
def test_an_axis_of_times_reaches_around_all_values_with_few_lines(values: list[float]) -> None:
    axis = milliseconds_axis(values)
    assert axis.ticks[0] <= min(values) <= max(values) <= axis.ticks[-1]
    assert 2 <= len(axis.ticks) <= 7
    assert [axis.share(axis.ticks[0]), axis.share(axis.ticks[-1])] == [0, 1]


def test_times_are_written_in_the_unit_one_would_say() -> None:
    assert [format_milliseconds(value) for value in (0.5, 38.2, 999, 1000, 43_210)] == [
        *("0.5 ms", "38.2 ms", "999 ms", "1 s", "43.2 s")
    ]


def test_bars_are_as_long_as_their_values() -> None:
    root = ElementTree.fromstring(bars("t", {"a": 10.0, "b": 5.0, "c": None}, 10.0, format_milliseconds))
    lengths = [float(bar.attrib["width"]) for bar in root.iter("rect") if "class" not in bar.attrib]
    assert lengths[0] == pytest.approx(2 * lengths[1])
    assert lengths[2] < 2
    assert [element.text for element in root.iter("title")] == ["t", "a: 10 ms", "b: 5 ms", "c: -"]
