from __future__ import annotations

from prefix_router.observe.catalogue import CATALOGUE, GROUPS, Kind, Metric


def test_names_are_unique_and_say_what_they_count() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    for metric in CATALOGUE:
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        if metric.kind in (Kind.HISTOGRAM, Kind.SUMMARY):
            assert metric.name.endswith("_seconds"), metric.name


def test_a_metric_in_seconds_says_so_in_its_name() -> None:
    for metric in CATALOGUE:
        assert metric.name.removesuffix("_total").endswith("_seconds") == (metric.unit == "seconds")


def test_every_metric_says_what_it_means_and_when_to_look() -> None:
    for metric in CATALOGUE:
        assert metric.unit, metric.name
        assert metric.meaning.endswith("."), metric.name
        assert metric.look_when.endswith((".", "?")), metric.name


def test_the_help_of_the_exposition_is_the_meaning_without_markdown() -> None:
    metric = Metric("x", Kind.GAUGE, (), "1", "`a` of [operations.md](operations.md#a).", "Never.")
    assert metric.help == "a of operations.md."
    for metric in CATALOGUE:
        assert "`" not in metric.help
        assert "](" not in metric.help


def test_no_group_is_empty_and_no_title_comes_twice() -> None:
    assert all(group.metrics for group in GROUPS)
    assert len({group.title for group in GROUPS}) == len(GROUPS)
