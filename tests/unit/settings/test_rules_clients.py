"""Rules about clients and their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefix_router.settings.load import load
from prefix_router.settings.problems import SettingsError

A, B = "a" * 64, "b" * 64
HEAD = "backends: [{url: 'http://127.0.0.1:8101'}]\nclients:\n"


@pytest.mark.parametrize(
    ("entries", "path", "message"),
    [
        (f"- {{name: x, key_sha256: ['{A}']}}\n- {{name: x, key_sha256: ['{B}']}}", "clients[1].name", "x"),
        (
            f"- {{name: x, key_sha256: ['{A}']}}\n- {{name: y, key_sha256: ['{A.upper()}']}}",
            "clients[1].key_sha256[0]",
            "key of its own",
        ),
        ("- {name: x, key_sha256: ['12']}", "clients[0].key_sha256[0]", "64 hex digits"),
        ("- {name: x, key_sha256: []}", "clients[0].key_sha256", "at least 1"),
        (
            "- {name: x, key_sha256: [" + ", ".join(f"'{at}{A[1:]}'" for at in range(5)) + "]}",
            "clients[0].key_sha256",
            "at most 4",
        ),
    ],
)
def test_what_is_wrong_is_told_and_no_hash_is_shown(
    tmp_path: Path, entries: str, path: str, message: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + entries)
    with pytest.raises(SettingsError) as error:
        load(file, environ={})
    text = str(error.value)
    assert path in text
    assert message in text
    assert A not in text.lower()
