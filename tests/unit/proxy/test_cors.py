from __future__ import annotations

import pytest
from multidict import CIMultiDict

from prefix_router.proxy.cors import Cors

APP = "https://app.example.org"


def cors(*origins: str, allow: tuple[str, ...] = ("*",), expose: tuple[str, ...] = ("x-request-id",)) -> Cors:
    return Cors(frozenset(origins), allow, expose, 600)


def headers(origin: str | None = APP, **more: str) -> CIMultiDict[str]:
    given = {} if origin is None else {"Origin": origin}
    return CIMultiDict({**given, **{name.replace("_", "-"): value for name, value in more.items()}})


def test_a_page_that_may_reads_answers_and_caches_keep_them_apart() -> None:
    assert cors(APP).lines(APP) == (
        b"Access-Control-Allow-Origin: https://app.example.org\r\n"
        b"Vary: Origin\r\n"
        b"Access-Control-Expose-Headers: x-request-id\r\n"
    )


@pytest.mark.parametrize(
    "origin", [None, "https://evil.example", "https://app.example.org.evil.example", "null"]
)
def test_everybody_else_hears_nothing_but_that_the_answer_depends_on_who_asks(origin: str | None) -> None:
    assert cors(APP).lines(origin) == b"Vary: Origin\r\n"


def test_every_page_may_where_a_star_says_so_and_cookies_never() -> None:
    lines = cors("*", expose=()).lines("https://anything.example")
    assert lines == b"Access-Control-Allow-Origin: *\r\n"
    assert cors("*").lines(None) == b""
    assert b"Credentials" not in lines + (cors("*").preflight("OPTIONS", asking()) or b"")


def asking(**more: str) -> CIMultiDict[str]:
    return headers(Access_Control_Request_Method="POST", **more)


def test_a_preflight_hears_what_it_may_and_for_how_long() -> None:
    answer = cors(APP, allow=("authorization", "content-type")).preflight("OPTIONS", asking())
    assert answer is not None
    assert b"Access-Control-Allow-Headers: authorization, content-type\r\n" in answer
    assert b"Access-Control-Allow-Methods: GET, HEAD, POST" in answer
    assert b"Access-Control-Max-Age: 600\r\n" in answer


def test_a_star_allows_the_headers_that_are_asked_for_by_name() -> None:
    asked = asking(Access_Control_Request_Headers="authorization, x-stainless-os")
    answer = cors(APP).preflight("OPTIONS", asked)
    assert answer is not None
    assert b"Access-Control-Allow-Headers: authorization, x-stainless-os\r\n" in answer


@pytest.mark.parametrize("asked", ["a b", "a\x0bb", "x" * 5000, "ä", ",", ""])
def test_what_is_no_list_of_names_is_not_repeated(asked: str) -> None:
    answer = cors(APP).preflight("OPTIONS", asking(Access_Control_Request_Headers=asked))
    assert answer is not None
    assert b"Allow-Headers" not in answer


def test_only_a_browsers_question_is_answered() -> None:
    assert cors(APP).preflight("POST", asking()) is None
    assert cors(APP).preflight("OPTIONS", headers()) is None
    assert cors(APP).preflight("OPTIONS", headers(None, Access_Control_Request_Method="POST")) is None
    refused = CIMultiDict({"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"})
    assert cors(APP).preflight("OPTIONS", refused) == b""
