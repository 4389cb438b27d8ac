from __future__ import annotations

import hashlib
import io
import sys

import pytest

from prefix_router import cli, hash_key
from prefix_router.hash_key import UnusableSecretError, generated, hashed

SECRET = "correct-horse-battery"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_secret_from_standard_input_is_hashed_without_its_line_feed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in (SECRET, f"{SECRET}\n", f"{SECRET}\r\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert cli.main(["hash-key"]) == 0
        assert capsys.readouterr().out == hashlib.sha256(SECRET.encode()).hexdigest() + "\n"


def test_a_terminal_is_asked_twice_and_never_shows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    answers = iter([SECRET, SECRET, SECRET, "something-else-entirely"])
    monkeypatch.setattr(hash_key, "getpass", lambda prompt: next(answers))
    assert cli.main(["hash-key"]) == 0
    assert cli.main(["hash-key"]) == 2
    printed = capsys.readouterr()
    assert printed.out == hashed(SECRET) + "\n"
    assert "not the same" in printed.err
    assert SECRET not in printed.out + printed.err


def test_a_generated_key_fits_its_hash_and_differs_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["hash-key", "--generate"]) == 0
    key, hash_ = (line.split()[1] for line in capsys.readouterr().out.splitlines())
    assert hashed(key) == hash_
    assert len({generated() for _ in range(100)}) == 100
    assert key.startswith("prk-")
    assert len(key) > 40


@pytest.mark.parametrize(
    "secret", ["", "short", "with a space in it......", "ümlaut-ümlaut-ümlaut", "a\tb" * 9]
)
def test_what_cannot_be_a_secret_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(UnusableSecretError) as failure:
        hashed(secret)
    assert not secret or secret not in str(failure.value)


def test_a_secret_is_never_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["hash-key", SECRET]) == 2
    capsys.readouterr()


def test_several_lines_are_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("", f"{SECRET}\n{SECRET}\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert cli.main(["hash-key"]) == 2
    assert "one line" in capsys.readouterr().err
