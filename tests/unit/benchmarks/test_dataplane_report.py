"""The tables and the drawing of the data-plane benchmark."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.dataplane.chart import svg
from benchmarks.dataplane.report import markdown, workers_text
from benchmarks.dataplane.summary import Row

SVG = "{http://www.w3.org/2000/svg}"


def row(
    router: str, *, cpu_ratio: float | None = 1.0, rate_ratio: float = 1.0, load_core_busy: float = 0.5
) -> Row:
    return Row(
        workload="small",
        router=router,
        rounds=3,
        rate=12_345.6,
        cpu_us=None if cpu_ratio is None else 50.0 * cpu_ratio,
        p50_ms=1.0,
        added_p50_ms=None if router == "direct" else 0.25,
        added_p99_ms=None if router == "direct" else 1.5,
        added_first_p50_ms=None,
        memory_mb=None,
        errors=2,
        rate_ratio=rate_ratio,
        cpu_ratio=cpu_ratio,
        load_core_busy=load_core_busy,
        router_core_busy=1.0,
        notes=(),
    )


TITLES = {"prefix_router": "prefix_router", "other": "other & <co>", "direct": "no router"}
LOADS = {"small": "260 B JSON"}
ROWS = [row("prefix_router"), row("other", cpu_ratio=7.5), row("direct", cpu_ratio=None)]


def test_the_report_has_a_table_for_each_load_with_a_line_for_each_router() -> None:
    text = markdown(ROWS, [], LOADS, TITLES, {"machine": "two cores"})
    assert "- machine: two cores" in text
    assert "## 260 B JSON" in text
    assert "| prefix_router | 12,346 | 1.00 × | 50 | 1.00 × | +0.25 | +1.50 | – | – | 2 | 50% |  |" in text
    lines = text.splitlines()
    table = lines[lines.index("## 260 B JSON") + 2 :]
    assert len(table) == 2 + len(ROWS)
    assert len({line.count("|") for line in table}) == 1


def test_workers_are_said_to_be_limited_by_the_load_only_when_they_were() -> None:
    one = row("workers-1")
    free = workers_text([one, row("workers-2", rate_ratio=1.9, cpu_ratio=1.05)], LOADS)
    assert "| 2 | 12,346 | 1.90 × | 52 | 50% | 1.90 × | 2 |  |" in free
    assert "lower bound" not in free
    limited = workers_text([one, row("workers-2", load_core_busy=0.97)], LOADS)
    assert "lower bound" in limited


def test_the_drawing_is_well_formed_and_bars_are_as_long_as_their_ratio() -> None:
    rows = [row("prefix_router"), row("half", cpu_ratio=0.5), row("other", cpu_ratio=7.5), row("direct")]
    drawing = ElementTree.fromstring(svg(rows, LOADS, TITLES))
    _, *bars = drawing.iter(f"{SVG}rect")
    ours, half, cut = (float(bar.attrib["width"]) for bar in bars)
    assert half == ours / 2
    assert cut == 5 * ours
    texts = [element.text for element in drawing.iter(f"{SVG}text")]
    assert "other & <co>" in texts
    assert "no router" not in texts
    assert " › 7.50 × (375 µs)" in texts


def test_a_router_without_a_result_has_no_bar() -> None:
    drawing = svg([row("prefix_router"), row("other", cpu_ratio=None)], LOADS, TITLES)
    assert "no result" in drawing
    assert drawing.count("<rect") == 2
