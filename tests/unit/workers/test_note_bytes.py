from __future__ import annotations

import os

import pytest

from prefix_router.routing.strategies.shared import Ended, FirstToken, Gone, Note, Sent
from prefix_router.workers.note_bytes import from_bytes, to_bytes

NOTES = [
    Sent(2**63, 12.25, 2**64 - 1, 5000, True, [1, 2**64 - 1]),
    Sent(1, 0.0, 0, 0, False, []),
    FirstToken(2**40, 1e9),
    Ended(3, 2.5, 7, 4096, 128, 0, 64),
    Ended(3, 2.5, 7, 4096, 128, None, 64),
    Gone(3.5),
]


def plain(note: Note | None) -> Note | None:
    return note._replace(names=list(note.names)) if isinstance(note, Sent) else note


@pytest.mark.parametrize("note", NOTES)
def test_what_is_read_is_what_was_written(note: Note) -> None:
    assert plain(from_bytes(to_bytes(note))) == note


@pytest.mark.parametrize("note", NOTES)
def test_bytes_that_are_no_note_are_nothing(note: Note) -> None:
    data = to_bytes(note)
    assert from_bytes(b"") is None
    assert from_bytes(b"\0" + data[1:]) is None
    assert from_bytes(b"\xff" + data[1:]) is None
    assert from_bytes(data[:-1]) is None
    assert from_bytes(data + b"x") is None
    for size in range(64):
        from_bytes(data[:1] + os.urandom(size))


def test_numbers_that_nobody_can_count_are_cut() -> None:
    note = from_bytes(to_bytes(Ended(1, 1.0, 1, 10, 10, 10**30, -5)))
    assert isinstance(note, Ended)
    assert (note.observed_tokens, note.completion_tokens) == (2**31 - 1, 0)
