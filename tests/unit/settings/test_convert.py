from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from prefix_router.settings.convert import Draft, convert
from prefix_router.settings.document import Mapping, parse
from prefix_router.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

BACKEND = "backends: [{url: h:1}]\n"

SECTIONS = ", ".join(field.name for field in structs.fields(Settings))


def draft_of(text: str) -> Draft:
    root = parse(text, "x.yaml", {})
    assert isinstance(root, Mapping)
    return convert(root)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("listen: {port: x}", 'listen.port: expected a whole number from 0 to 65535, got "x"'),
        ("listen: {port: -1}", "listen.port: expected a whole number from 0 to 65535, got -1"),
        ("listen: {port: 65536}", "listen.port: expected a whole number from 0 to 65535, got 65536"),
        ("listen: {port: 1.0}", "listen.port: expected a whole number from 0 to 65535, got 1.0"),
        ("listen: {port: true}", "listen.port: expected a whole number from 0 to 65535, got true"),
        ("listen: {port: }", "listen.port: expected a whole number from 0 to 65535, got nothing"),
        ("listen: {port: [1]}", "listen.port: expected a whole number from 0 to 65535, got a list"),
        ("listen: {port: []}", "listen.port: expected a whole number from 0 to 65535, got an empty list"),
        ("listen: {port: {}}", "listen.port: expected a whole number from 0 to 65535, got a mapping"),
        (
            'listen: {port: "80"}',
            'listen.port: expected a whole number from 0 to 65535, got "80" (leave out the quotes)',
        ),
        (
            "listen: {host: 7}",
            ("listen.host: expected a host name or an IP address, without brackets or port, got 7 "
            "(put it in quotes)"),
        ),
        (
            'listen: {host: "[::]"}',
            'listen.host: expected a host name or an IP address, without brackets or port, got "[::]"',
        ),
        (
            'listen: {host: "a\\n"}',
            'listen.host: expected a host name or an IP address, without brackets or port, got "a\\n"',
        ),
        (
            "health: {interval_seconds: .nan}",
            "health.interval_seconds: expected a number from 0.01 to 3600, got .nan",
        ),
        (
            "health: {interval_seconds: .inf}",
            "health.interval_seconds: expected a number from 0.01 to 3600, got .inf",
        ),
        (
            "health: {path: health}",
            'health.path: expected a path that begins with / and holds no space, got "health"',
        ),
        (
            "logging: {format: jsn}",
            'logging.format: expected one of text, json, got "jsn"; did you mean json?',
        ),
        ("logging: {format: xml}", 'logging.format: expected one of text, json, got "xml"'),
        ("logging: {access: maybe}", 'logging.access: expected true or false, got "maybe"'),
        (
            "routing: {session: {cookie: 'a b'}}",
            'routing.session.cookie: expected null or a name of letters, digits, - or _, got "a b"',
        ),
        ("listen: 8000", "listen: expected a mapping, got 8000"),
        ("listen: [8000]", "listen: expected a mapping, got a list"),
        ("listen: {prot: 1}", "listen.prot: unknown key; did you mean port?"),
        ("listen: {zzz: 1}", ("listen.zzz: unknown key; expected one of host, port, backlog, tls, "
         "trusted_proxies, cors")),
        ("port: 1", ("port: unknown key; did you mean listen.port or admin.port or discovery.dns.port or "
         "discovery.kubernetes.port?")),
        ("prefix: {}", "prefix: unknown key; did you mean routing.prefix?"),
        ("virtual_nodes: 1", "virtual_nodes: unknown key; did you mean routing.ring.virtual_nodes?"),
        ("Routing: {}", "Routing: unknown key; did you mean routing?"),
        ("<<: {}", f"<<: unknown key; expected one of {SECTIONS}"),
        ("listen: {port: 1, port: 2}", "listen.port: given twice; the first time on line 2"),
        ("models: !x {}", "models: the YAML tag !x is not supported: write the plain value"),
    ],
)  # fmt: skip
def test_one_mistake_is_told_in_one_line(mistakes: Callable[..., list[str]], text: str, mistake: str) -> None:
    assert mistakes(BACKEND + text) == [f"x.yaml:2: {mistake}"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("backends: http://h:1", 'backends: expected a list, got "http://h:1"'),
        ("backends: {url: h:1}", "backends: expected a list, got a mapping"),
        ("backends:", "backends: expected a list, got nothing"),
        ("backends: [h:1]", 'backends[0]: expected a mapping with url, got "h:1"'),
        (
            "backends: ['http://user:secret@h:1']",
            'backends[0]: expected a mapping with url, got "http://...@h:1"',
        ),
        ("backends: [null]", "backends[0].url: missing; expected a URL such as http://10.0.0.1:8000"),
        ("backends: [{name: a}]", "backends[0].url: missing; expected a URL such as http://10.0.0.1:8000"),
        ("backends: [{url: 8000}]", ("backends[0].url: expected a URL such as http://10.0.0.1:8000, got 8000 "
         "(put it in quotes)")),
        ("backends: [{url: 'ftp://h'}]", "backends[0].url: expected http:// or https:// before the host"),
        (
            "backends: [{url: 'http://user:secret@h'}]",
            "backends[0].url: expected no user name or password before the host",
        ),
        (
            "backends: [{url: h:1, weight: 0}]",
            "backends[0].weight: expected a whole number from 1 to 100, got 0",
        ),
        (
            "backends: [{url: h:1, weight: 1.5}]",
            "backends[0].weight: expected a whole number from 1 to 100, got 1.5",
        ),
        (
            "backends: [{url: h:1, name: a b}]",
            'backends[0].name: expected at most 128 letters, digits, - . _ : / [ or ], got "a b"',
        ),
        (
            "backends: [{url: h:1, models: llama}]",
            'backends[0].models: expected null or a list with at least 1 entry, got "llama"',
        ),
        (
            "backends: [{url: h:1, models: []}]",
            "backends[0].models: expected null or a list with at least 1 entry, got an empty list",
        ),
        (
            "backends: [{url: h:1, models: [a, 7]}]",
            "backends[0].models[1]: expected the name of a model, got 7 (put it in quotes)",
        ),
        ("backends: [{url: h:1, wieght: 2}]", "backends[0].wieght: unknown key; did you mean weight?"),
    ],
)  # fmt: skip
def test_one_mistake_in_a_backend_is_told_in_one_line(
    mistakes: Callable[..., list[str]], text: str, mistake: str
) -> None:
    assert mistakes(text) == [f"x.yaml:1: {mistake}"]


def test_a_long_value_is_cut_in_the_message(mistakes: Callable[..., list[str]]) -> None:
    (mistake,) = mistakes(f"{BACKEND}listen: {{port: {'x' * 200}}}")
    assert mistake.endswith(f'got "{"x" * 57}..."')


def test_digits_without_end_are_a_mistake_and_no_crash(mistakes: Callable[..., list[str]]) -> None:
    digits = "9" * 5000
    (bare,) = mistakes(f"{BACKEND}listen: {{port: {digits}}}")
    assert bare.endswith("cannot be read as int")
    (quoted,) = mistakes(f'{BACKEND}listen: {{port: "{digits}"}}')
    assert quoted.endswith(f'got "{digits[:57]}..."')


def test_a_wrong_value_from_the_environment_names_its_variable(mistakes: Callable[..., list[str]]) -> None:
    text = f"{BACKEND}listen:\n  port: ${{PORT}}\n"
    assert mistakes(text, {"PORT": "tcp://10.0.0.1:80"}) == [
        'x.yaml:3: listen.port: expected a whole number from 0 to 65535, got "tcp://10.0.0.1:80" from ${PORT}'
    ]


def test_a_section_whose_keys_are_all_commented_out_has_its_defaults() -> None:
    draft = draft_of(f"{BACKEND}listen:\n  # port: 1\nrouting:\n  ring:\n")
    assert draft.problems == []
    assert draft.settings == draft_of(BACKEND).settings


def test_a_backend_is_normalised_and_named() -> None:
    draft = draft_of("backends: [{url: h:1/v1/}, {url: 'http://[::1]:2/p', name: b}, {url: h:3, name: ''}]")
    backends = [(backend.url, backend.name) for backend in draft.settings.backends]
    assert backends == [("http://h:1", "h:1"), ("http://[::1]:2/p", "b"), ("http://h:3", "h:3")]


def test_a_wrong_backend_is_left_out_and_the_others_keep_their_paths() -> None:
    draft = draft_of("backends: [{url: h:1}, {url: 'ftp://h'}, {url: h:3}]")
    assert [backend.name for backend in draft.settings.backends] == ["h:1", "h:3"]
    assert draft.backend_paths == ("backends[0]", "backends[2]")


def test_a_default_stands_in_for_a_wrong_value_and_only_that_value_is_unsound() -> None:
    draft = draft_of("listen: {port: x, host: h}\n")
    assert draft.settings.listen.port == 8000
    assert draft.settings.listen.host == "h"
    assert not draft.is_sound("listen.port")
    assert not draft.is_sound("listen")
    assert draft.is_sound("listen.host")
    assert draft.is_sound("admin.port")


def test_a_wrong_section_makes_all_in_it_unsound() -> None:
    draft = draft_of("listen: 5\n")
    assert not draft.is_sound("listen.port")


def test_a_setting_that_was_not_given_stands_where_its_section_stands() -> None:
    draft = draft_of("\nlisten:\n  port: 1\n")
    assert draft.is_given("listen.port")
    assert not draft.is_given("listen.host")
    assert draft.origin("listen.port").line == 3
    assert draft.origin("listen.host").line == 3  # where the mapping of `listen` begins
    assert draft.origin("admin.port").line == 2
