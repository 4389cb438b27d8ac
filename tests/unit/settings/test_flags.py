from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from prefix_router.settings.fields import leaves
from prefix_router.settings.flags import FLAGS, add_flags, given_flags
from prefix_router.settings.load import load, load_text
from prefix_router.settings.problems import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefix_router.settings.fields import Field
    from prefix_router.settings.flags import Given
    from prefix_router.settings.model import Settings

FIELDS = {field.path: field for field in leaves()}


def parse(*arguments: str) -> tuple[Given, ...]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return given_flags(parser.parse_args(arguments))


def value_at(settings: Settings, path: str) -> object:
    found: object = settings
    for name in path.split("."):
        found = getattr(found, name)
    return getattr(found, "value", found)


def another_value(field: Field) -> str:
    """A value for this setting that is right and not its default, as it is typed."""
    special = {
        "routing.prefix.unit": "bytes",
        "routing.prefix.anchor": "none",
        "routing.prefix.depth": "auto",
        "routing.strategy": "session",
        "logging.level": "debug",
        "logging.format": "json",
    }
    if field.path in special:
        return special[field.path]
    return "192.0.2.1" if isinstance(field.default, str) else str(int(str(field.default)) + 1)


def test_every_flag_stands_for_a_setting_of_its_own() -> None:
    assert set(FLAGS.values()) <= FIELDS.keys()
    assert len(set(FLAGS.values())) == len(FLAGS)


@pytest.mark.parametrize(
    ("flag", "path"),
    [
        (flag, path)
        for flag, path in FLAGS.items()
        if not isinstance(FIELDS[path].default, bool) and path != "routing.prefix.tokenizer"
    ],
)
def test_a_flag_sets_its_setting_and_wins_over_the_file(flag: str, path: str) -> None:
    field = FIELDS[path]
    value = another_value(field)
    for text in ("backends: [{url: h:1}]", f"backends: [{{url: h:1}}]\n{path.split('.', maxsplit=1)[0]}:"):
        settings = load_text(text, "x.yaml", {}, flags=parse(flag, value))
        assert str(value_at(settings, path)) in {value, f"{value}.0"}


@pytest.mark.parametrize(
    "flag", [flag for flag, path in FLAGS.items() if isinstance(FIELDS[path].default, bool)]
)
@pytest.mark.parametrize("value", [True, False])
def test_a_switch_can_be_turned_on_and_off(flag: str, value: bool) -> None:
    typed = flag if value else flag.replace("--", "--no-", 1)
    section, _, name = FLAGS[flag].partition(".")
    text = f"backends: [{{url: h:1}}]\n{section}: {{{name}: {not value}}}\n"
    assert value_at(load_text(text, "x.yaml", {}, flags=parse(typed)), FLAGS[flag]) is value


def test_a_setting_of_the_file_stays_when_no_flag_names_it() -> None:
    text = "backends: [{url: h:1}]\nlisten: {port: 7000, backlog: 5}\nlogging: {access: true}\n"
    settings = load_text(text, "x.yaml", {}, flags=parse("--port", "7001"))
    assert (settings.listen.port, settings.listen.backlog, settings.logging.access) == (7001, 5, True)


def test_backends_of_all_flags_replace_those_of_the_file_in_the_order_in_which_they_were_typed() -> None:
    flags = parse("--backend", "a:1", "--worker-urls", "b:1,c:1", "d:1,", "--backend", "http://e:1/v1")
    settings = load_text("backends: [{url: h:1}]", "x.yaml", {}, flags=flags)
    assert [backend.name for backend in settings.backends] == ["a:1", "b:1", "c:1", "d:1", "e:1"]


def test_flags_and_defaults_are_enough() -> None:
    assert load(None, flags=parse("--backend", "h:1")).backends[0].url == "http://h:1"


def test_without_a_file_and_without_a_backend_there_is_nothing_to_serve() -> None:
    with pytest.raises(SettingsError) as caught:
        load(None)
    assert str(caught.value) == (
        "command line: backends: expected at least one backend, in the file or as --backend URL"
    )


def test_mistakes_in_flags_are_told_together_with_those_of_the_file(
    mistakes: Callable[..., list[str]],
) -> None:
    flags = parse(
        "--port", "eighty", "--prefix-length", "0", "--strategy", "prefix-aware",
        "--first-byte-timeout-seconds", "nan",
        "--backend", "http://user:secret@h:1", "--backend", "h:2", "--worker-urls", "h:2",
        "--engine-metrics-interval-seconds", "0.5", "--prefix-tokenizer", "",
    )  # fmt: skip
    assert mistakes("listen: {port: 1, backlog: 0}\nbackends: 5\n", flags=flags) == [
        "x.yaml:1: listen.backlog: expected a whole number from 1 to 65535, got 0",
        'command line: --port: expected a whole number from 0 to 65535, got "eighty"',
        "command line: --backend (backend 1): expected no user name or password before the host",
        (
            "command line: --strategy: expected one of random, round_robin, least_outstanding_requests, "
            'session, prefix_aware, adaptive, got "prefix-aware"; did you mean prefix_aware?'
        ),
        'command line: --prefix-length: expected a whole number from 1 to 1048576, got "0"',
        'command line: --prefix-tokenizer: expected null or the path of a file, got ""',
        'command line: --first-byte-timeout-seconds: expected a number from 0 to 86400, got "nan"',
        (
            "command line: --worker-urls (backend 3): expected each backend once; http://h:2 was given "
            "before (--backend (backend 2))"
        ),
        (
            "command line: --engine-metrics-interval-seconds: expected 0 (never) or a number from 1 to 3600, "
            "got 0.5"
        ),
    ]


def test_a_single_wrong_backend_needs_no_number(mistakes: Callable[..., list[str]]) -> None:
    assert mistakes("listen: {}", flags=parse("--backend", "ftp://h")) == [
        "command line: --backend: expected http:// or https:// before the host"
    ]


def test_a_flag_does_not_hide_that_its_section_is_no_section(mistakes: Callable[..., list[str]]) -> None:
    flags = parse("--port", "1", "--backend", "h:1")
    assert mistakes("listen: 8000\n", flags=flags) == ["x.yaml:1: listen: expected a mapping, got 8000"]


def test_a_flag_mends_a_mistake_of_the_file() -> None:
    text = "backends: [{url: h:1}]\nlisten: {port: '${PORT}'}\n"
    assert load_text(text, "x.yaml", {}, flags=parse("--port", "7001")).listen.port == 7001


def test_the_help_of_a_flag_is_the_description_of_its_setting() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    help_text = "".join(parser.format_help().split())
    for path in FLAGS.values():
        expected = f"{FIELDS[path].description} {FIELDS[path].facts}"
        assert "".join(expected.split()) in help_text
