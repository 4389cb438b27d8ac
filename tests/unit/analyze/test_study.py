from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from prefix_router.analyze.document import as_document
from prefix_router.analyze.notes import input_notes, load_notes, method_notes
from prefix_router.analyze.page import as_page
from prefix_router.analyze.reading import InputError
from prefix_router.analyze.study import Analysis, Question, study
from prefix_router.analyze.text import as_text, cell_text, setting_lines
from prefix_router.analyze.verdict import Expectation
from tests.support.recorded import documents, unique, write


def ask(tmp_path: Path, lines: list[Any], **changes: Any) -> Analysis:
    question = Question(
        files=(write(tmp_path / "traffic.jsonl", lines),),
        path=None,
        loads=(0.3,),
        replicas=3,
        profile="llama-3.1-8b-h100",
        requests=6000,
        output_tokens=20,
        concurrency_threshold=64,
        seed=1,
        jobs=1,
    )
    for name, value in changes.items():
        object.__setattr__(question, name, value)
    return study(question, lambda what, share: None)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Five questions to each of 50 documents of 900 tokens."""
    return ask(tmp_path_factory.mktemp("shared"), documents(250, document_tokens=900))


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Prompts that share nothing, at two loads."""
    return ask(tmp_path_factory.mktemp("lonely"), [*unique(60), "nonsense"], loads=(0.3, 0.5))


def test_the_sharing_that_was_sent_is_found(shared: Analysis) -> None:
    assert shared.sharing.recurring_share == pytest.approx(0.8 * 900 / 936, abs=0.02)
    row, column = shared.sharing.cells[2], 2  # 256 to 1k tokens, three to five times
    assert row[column].requests >= 240


def test_affinity_finds_what_recurs_and_chance_does_not(shared: Analysis) -> None:
    rows = {row["strategy"]: row for row in shared.rows}
    assert rows["random"]["hit_rate"] < 0.6
    assert rows["prefix_aware 512"]["hit_rate"] > 0.7
    assert rows["prefix_aware auto"]["hit_rate"] > 0.7
    assert rows["prefix_aware 512"]["ttft_ms"]["p50"] < rows["random"]["ttft_ms"]["p50"]
    assert shared.verdict.expectation in (Expectation.MUCH, Expectation.A_LOT)
    assert setting_lines(shared)[1] == "  strategy: prefix_aware"
    assert not shared.by_load_alone


def test_traffic_that_shares_nothing_is_told_so(lonely: Analysis) -> None:
    assert lonely.verdict.expectation is Expectation.LITTLE
    assert lonely.verdict.headline == "Expect little: 0% of your prompt tokens recur"
    assert "Only 60 requests" in lonely.verdict.remarks[0]


def test_where_prefixes_gain_nothing_and_cost_nothing_the_load_alone_is_recommended(lonely: Analysis) -> None:
    alone = next(row for row in lonely.rows if row["strategy"] == "least_outstanding")
    expected = alone["ttft_ms"]["p99"] <= lonely.recommended["ttft_ms"]["p99"]
    assert lonely.by_load_alone is expected
    if expected:
        assert setting_lines(lonely) == ["routing:", "  strategy: least_outstanding_requests"]


def test_each_load_has_all_contenders(lonely: Analysis) -> None:
    labels = [row["strategy"] for row in lonely.rows]
    half = len(labels) // 2
    assert labels[:half] == labels[half:]
    assert [row["load"] for row in lonely.rows] == [0.3] * half + [0.5] * half
    assert lonely.loads == (0.3, 0.5)


def test_without_loads_the_recorded_rate_is_simulated(tmp_path: Path) -> None:
    lines = [{"timestamp": number / 10, "body": body} for number, body in enumerate(unique(50))]
    analysis = ask(tmp_path, lines, loads=None)
    assert analysis.recorded_rate == pytest.approx(10.0)
    (load,) = analysis.loads
    assert load == pytest.approx(10 / analysis.facts.capacity, rel=0.01)
    (note,) = load_notes(analysis)
    assert note.startswith("The recorded 10.0 requests a second are ")
    assert "Times as recorded." in method_notes(analysis)


def test_a_recorded_rate_that_is_too_high_is_said(tmp_path: Path) -> None:
    lines = [{"timestamp": number / 5000, "body": body} for number, body in enumerate(unique(50))]
    said = " ".join(load_notes(ask(tmp_path, lines, loads=None, replicas=1)))
    assert "they cannot keep up" in said
    assert "Try --replicas " in said


def test_without_times_and_loads_the_default_loads_are_simulated(tmp_path: Path) -> None:
    analysis = ask(tmp_path, unique(20), loads=None)
    assert analysis.recorded_rate is None
    assert analysis.loads == (0.5, 0.8)
    assert load_notes(analysis) == []


def test_what_was_assumed_is_said(shared: Analysis, lonely: Analysis) -> None:
    notes = method_notes(shared)
    assert "Simulated: all 250 requests." in notes
    assert "250 answers were not recorded and taken to have 20 tokens." in notes
    assert "Times were not recorded: requests come independently (Poisson)." in notes
    assert any("3 replicas of llama-3.1-8b-h100" in note for note in notes)
    read = input_notes(lonely)
    assert read[0] == "61 lines, 60 of them requests with a prompt."
    assert read[1].startswith("Not used: 1 × not JSON (")


def test_only_the_first_requests_are_simulated_and_all_are_counted(tmp_path: Path) -> None:
    analysis = ask(tmp_path, documents(60, document_tokens=300), requests=20)
    assert analysis.sharing.requests == 60
    assert {row["requests"] for row in analysis.rows} == {20}
    assert "Simulated: the first 20 requests." in method_notes(analysis)


def test_nothing_to_analyze_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of 2 lines .*: not JSON \(1: .*:1\); not a JSON object"):
        ask(tmp_path, ["nonsense", "[]"])
    with pytest.raises(InputError, match="there is nothing in it"):
        ask(tmp_path, [])


def test_a_single_request_is_enough(tmp_path: Path) -> None:
    assert ask(tmp_path, unique(1)).verdict.expectation is Expectation.LITTLE


def test_the_same_question_has_the_same_answer(tmp_path: Path) -> None:
    lines = documents(40, document_tokens=300)
    assert as_document(ask(tmp_path, lines)) == as_document(ask(tmp_path, lines, jobs=2))


def test_the_text_begins_with_the_verdict_and_has_every_part(shared: Analysis) -> None:
    text = as_text(shared)
    assert text.startswith(f"{shared.verdict.headline}; ")
    for title in (
        "Set",
        "What was read",
        "How requests share beginnings",
        "What routing would make of it",
        "What to keep in mind",
    ):
        assert f"\n{title}\n{'-' * len(title)}\n" in text
    assert "256 to 1k" in text
    assert "prefix_aware auto" in text


def test_the_document_is_plain_and_has_the_numbers(shared: Analysis) -> None:
    document = as_document(shared)
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    assert document["verdict"]["expectation"] == shared.verdict.expectation.value
    assert document["recommendation"]["concurrency_threshold"] == shared.threshold.threshold
    sharing = document["sharing"]
    assert len(sharing["requests"]) == len(sharing["rows"])
    assert {len(cells) for cells in sharing["requests"]} == {len(sharing["columns"])}
    assert sum(map(sum, sharing["requests"])) == 250
    assert document["simulation"]["rows"] == list(shared.rows)


def test_the_page_fetches_nothing_and_has_the_verdict(shared: Analysis, lonely: Analysis) -> None:
    for analysis in (shared, lonely):
        page = as_page(analysis)
        assert analysis.verdict.headline in page
        for forbidden in ("<script", "src=", "href=", "url(", "@import"):
            assert forbidden not in page
        assert page.count("<table") == page.count("</table>")
        assert page.count("<section") == page.count("</section>")
        assert "prefers-color-scheme: dark" in page


def test_no_word_of_a_prompt_is_shown_anywhere(shared: Analysis) -> None:
    for made in (as_text(shared), as_page(shared), str(as_document(shared))):
        assert "alpha" not in made
        assert "kappa" not in made


def test_names_of_files_cannot_break_the_page(tmp_path: Path) -> None:
    directory = tmp_path / "<b>&"
    directory.mkdir()
    page = as_page(ask(directory, unique(5)))
    assert "<b>&" not in page
    assert "&lt;b&gt;&amp;" in page


@pytest.mark.parametrize(("share", "text"), [(0, "·"), (0.0001, "<0.1%"), (0.5, "50.0%")])
def test_a_small_share_is_not_nothing(share: float, text: str) -> None:
    assert cell_text(share) == text
