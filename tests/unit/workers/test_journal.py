from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from prefix_router.routing.decision import Visit
from prefix_router.routing.fleet import BackendName, Fleet
from prefix_router.routing.strategies.adaptive import Adaptive
from prefix_router.routing.strategies.shared import FirstToken, Gone, Note, Sent
from prefix_router.workers.journal import (
    MOST_READ_BYTES,
    MOST_RECORD_BYTES,
    Cursor,
    Journal,
    JournalPeers,
)
from prefix_router.workers.note_bytes import to_bytes
from tests.support.fleets import fleet_of, member
from tests.unit.routing.strategies.test_shared import TOKENS, asked, prompt

ONE, TWO, THREE = 1, 2, 3
SMALL_BYTES = 2 * MOST_RECORD_BYTES
RECORD_BYTES = len(to_bytes(FirstToken(0, 0.0))) + 8


@pytest.fixture
def journal() -> Iterator[Journal]:
    made = Journal.create(workers=3)
    yield made
    made.close()


@pytest.fixture
def small() -> Iterator[Journal]:
    made = Journal.create(workers=2, ring_bytes=SMALL_BYTES)
    yield made
    made.close()


def numbered(count: int, first: int = 0) -> list[Note]:
    return [FirstToken(visit, float(visit)) for visit in range(first, first + count)]


def append(journal: Journal, notes: list[Note], worker: int = ONE) -> None:
    for note in notes:
        journal.append(worker, note)


def all_of(cursor: Cursor) -> list[Note]:
    notes: list[Note] = []
    while found := cursor.read():
        notes += found
    return notes


def test_every_worker_reads_what_the_others_wrote_each_at_its_own_pace(journal: Journal) -> None:
    one, two, three = (JournalPeers(journal, worker) for worker in (ONE, TWO, THREE))
    one.write(FirstToken(1, 1.0))
    assert list(two.read()) == [(ONE, FirstToken(1, 1.0))]
    two.write(FirstToken(2, 2.0))
    assert list(two.read()) == []
    assert list(three.read()) == [(ONE, FirstToken(1, 1.0)), (TWO, FirstToken(2, 2.0))]
    assert list(one.read()) == [(TWO, FirstToken(2, 2.0))]


def test_notes_of_several_workers_come_in_order_of_time(journal: Journal) -> None:
    append(journal, [FirstToken(1, 1.0), FirstToken(2, 4.0)], ONE)
    append(journal, [FirstToken(3, 2.0), FirstToken(4, 3.0)], TWO)
    notes = JournalPeers(journal, THREE).read()
    assert [(worker, note.at) for worker, note in notes] == [(ONE, 1.0), (TWO, 2.0), (TWO, 3.0), (ONE, 4.0)]


def test_a_read_is_bounded_and_the_next_one_goes_on(journal: Journal) -> None:
    written = numbered(3 * MOST_READ_BYTES // RECORD_BYTES)
    append(journal, written)
    cursor = Cursor(journal, ONE)
    first = cursor.read()
    assert MOST_READ_BYTES <= len(first) * RECORD_BYTES < MOST_READ_BYTES + RECORD_BYTES
    assert first + all_of(cursor) == written


def test_records_go_on_at_the_beginning_of_a_ring_that_is_full(small: Journal) -> None:
    cursor = Cursor(small, ONE)
    rounds = 4 * SMALL_BYTES // (RECORD_BYTES * 100)
    assert SMALL_BYTES % RECORD_BYTES  # so that a record is cut in two at the end
    for first in range(0, rounds * 100, 100):
        written = numbered(100, first)
        append(small, written)
        assert all_of(cursor) == written
    assert small.heads[0] > 3 * SMALL_BYTES
    assert cursor.lost_bytes == 0


def test_a_reader_that_is_a_ring_behind_goes_on_at_the_newest_and_counts_what_it_lost(small: Journal) -> None:
    cursor = Cursor(small, ONE)
    append(small, numbered(1))
    assert cursor.read() == numbered(1)
    append(small, numbered(SMALL_BYTES // RECORD_BYTES + 1))
    assert cursor.read() == [Gone(0.0)]
    assert cursor.lost_bytes == (SMALL_BYTES // RECORD_BYTES + 1) * RECORD_BYTES
    assert cursor.read() == []
    append(small, numbered(2, 7))
    assert cursor.read() == numbered(2, 7)


def test_a_record_that_is_overwritten_while_it_is_read_is_not_taken_for_one(small: Journal) -> None:
    append(small, numbered(5))
    small.memory[2 * 24 + 3 * RECORD_BYTES + 12] ^= 1
    cursor = Cursor(small, ONE)
    assert cursor.read() == numbered(3)
    assert cursor.read() == [Gone(2.0)]
    assert cursor.lost_bytes == 2 * RECORD_BYTES
    append(small, numbered(1, 9))
    assert cursor.read() == numbered(1, 9)


def test_a_record_that_is_not_all_there_yet_is_read_when_it_is(small: Journal) -> None:
    append(small, numbered(2))
    place = 2 * 24 + RECORD_BYTES
    whole = small.memory[place : place + RECORD_BYTES]
    small.memory[place : place + RECORD_BYTES] = bytes(RECORD_BYTES)
    cursor = Cursor(small, ONE)
    assert cursor.read() == numbered(1)
    small.memory[place : place + RECORD_BYTES] = whole
    assert cursor.read() == numbered(1, 1)
    assert cursor.lost_bytes == 0


@pytest.mark.parametrize("length", [2**32 - 1, RECORD_BYTES, MOST_RECORD_BYTES])
def test_a_length_that_cannot_be_is_not_believed(small: Journal, length: int) -> None:
    append(small, numbered(1))
    small.memory[2 * 24 : 2 * 24 + 4] = struct.pack("<I", length)
    cursor = Cursor(small, ONE)
    assert cursor.read() == []
    assert cursor.read() == [Gone(0.0)]


def test_a_record_of_an_earlier_round_is_none_of_this_one(small: Journal) -> None:
    append(small, numbered(1))
    old = small.memory[2 * 24 : 2 * 24 + RECORD_BYTES]
    count = SMALL_BYTES // RECORD_BYTES - 1
    append(small, numbered(count))
    rest = SMALL_BYTES - (count + 1) * RECORD_BYTES
    # Fill up to the end of the ring, so that the next record begins where the old one did.
    head = small.heads[0] = small.heads[0] + rest
    append(small, numbered(1))
    assert small.data(ONE, head, head + RECORD_BYTES) is not None
    small.memory[2 * 24 : 2 * 24 + RECORD_BYTES] = old
    assert small.data(ONE, head, head + RECORD_BYTES) is None


def test_a_note_that_is_too_long_is_left_out(small: Journal) -> None:
    small.append(ONE, Sent(1, 1.0, 1, 1, True, range(MOST_RECORD_BYTES // 8)))
    assert small.heads[0] == 0


def test_nothing_new_is_found_out_without_reading_a_ring(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = JournalPeers(journal, ONE)
    append(journal, numbered(1), TWO)
    assert peers.read()

    def read(cursor: Cursor) -> list[Note]:
        raise AssertionError("there is nothing new")

    monkeypatch.setattr(Cursor, "read", read)
    peers.write(FirstToken(1, 1.0))
    assert not peers.read()
    append(journal, numbered(1), TWO)
    with pytest.raises(AssertionError, match="nothing new"):
        peers.read()


@pytest.mark.parametrize("rounds", [0, 1, 2, 7])
def test_who_comes_later_takes_over_the_recent_past(small: Journal, rounds: int) -> None:
    count = (rounds * SMALL_BYTES + SMALL_BYTES * 3 // 4) // RECORD_BYTES
    append(small, numbered(count))
    found = all_of(Cursor(small, ONE))
    assert found == numbered(len(found), count - len(found))
    assert SMALL_BYTES // 2 <= len(found) * RECORD_BYTES <= SMALL_BYTES


def test_a_successor_goes_on_in_the_same_ring_and_learns_what_the_dead_one_knew(journal: Journal) -> None:
    other = JournalPeers(journal, TWO)
    append(journal, numbered(3), ONE)
    assert len(other.read()) == 3
    append(journal, numbered(1, 3), ONE)
    journal.reclaim(ONE, 10.0)
    assert list(other.read()) == [(ONE, FirstToken(3, 3.0)), (ONE, Gone(10.0))]
    successor = JournalPeers(journal, ONE)
    successor.write(FirstToken(100, 11.0))
    assert list(other.read()) == [(ONE, FirstToken(100, 11.0))]
    assert list(successor.read()) == [(ONE, note) for note in [*numbered(4), Gone(10.0)]]
    assert list(successor.read()) == []


def test_the_pool_marks_the_halves_of_a_ring_as_its_worker_does(small: Journal) -> None:
    pool = Journal(os.dup(small.descriptor), 2, SMALL_BYTES)
    count = SMALL_BYTES * 3 // 2 // RECORD_BYTES
    append(small, numbered(count))
    while small.heads[0] // (SMALL_BYTES // 2) == 2:
        pool.reclaim(ONE, 1.0)
    pool.reclaim(ONE, 1.0)
    found = all_of(Cursor(small, ONE))
    assert FirstToken(count - 1, float(count - 1)) in found
    assert Cursor(small, ONE).read()[0] != Gone(0.0)
    pool.close()


def test_visits_of_a_worker_have_different_numbers_even_after_it_has_begun_anew(journal: Journal) -> None:
    numbers = []
    for _ in range(3):
        peers = JournalPeers(journal, ONE)
        for _ in range(50):
            numbers.append(peers.number())
            peers.write(FirstToken(numbers[-1], 0.0))
    assert len(set(numbers)) == len(numbers)


def test_a_journal_needs_workers_and_room() -> None:
    for workers, ring_bytes in ((0, SMALL_BYTES), (1, MOST_RECORD_BYTES)):
        with pytest.raises(ValueError, match="expected workers and room"):
            Journal.create(workers, ring_bytes)


def test_a_writer_that_laps_its_reader_again_and_again_never_has_it_read_what_was_not_written(
    small: Journal,
) -> None:
    child = os.fork()
    if not child:  # whatever happens, this copy of the tests must not go on
        try:
            there = Journal(small.descriptor, 2, SMALL_BYTES)
            for number in range(30_000):
                there.append(ONE, Sent(number, float(number), 7, 8, True, [number] * (number % 200)))
            os._exit(0)
        finally:
            os._exit(1)
    cursor, ended = Cursor(small, ONE), (0, 0)
    while ended == (0, 0):
        check_notes(cursor.read())
        ended = os.waitpid(child, os.WNOHANG)
    assert ended == (child, 0)
    check_notes(all_of(cursor))
    assert check_notes(all_of(Cursor(small, ONE)))


def check_notes(notes: list[Note]) -> int:
    """See that all of these were written, in this order; return how many there are."""
    sent = [note for note in notes if isinstance(note, Sent)]
    for note in sent:
        assert (note.at, list(note.names)) == (note.visit, [note.visit] * (note.visit % 200))
    assert len(notes) - len(sent) <= 1
    visits = [note.visit for note in sent]
    assert visits == sorted(visits)
    return len(visits)


class Side:
    """A worker: its strategy, and its own view of the fleet."""

    def __init__(self, journal: Journal, worker: int) -> None:
        self.strategy = Adaptive()
        self.strategy.peers = JournalPeers(journal, worker)
        self.fleet: Fleet = fleet_of(member(name) for name in "abc")

    def send(self, text: int, now: float, *, draw: int = 0) -> Sending:
        decision = self.strategy.choose(asked(text, now, draw), self.fleet)
        assert decision is not None
        assert decision.visit is not None
        decision.visit.sent(now, streamed=True)
        return Sending(decision.member.name, decision.visit)


class Sending:
    """A request on its way."""

    def __init__(self, backend: BackendName, visit: Visit) -> None:
        self.backend = backend
        self.visit = visit


@pytest.mark.parametrize("draw", range(3))
def test_one_worker_chooses_the_backend_to_which_another_one_sent_the_prompt(
    journal: Journal, draw: int
) -> None:
    here, there = Side(journal, ONE), Side(journal, TWO)
    first = here.send(1, 1.0, draw=draw)
    first.visit.first_token(1.2)
    first.visit.ended(2.0, 0, TOKENS, 10)
    assert {there.send(1, 100.0, draw=draw).backend for draw in range(3)} == {first.backend}


def test_the_backlog_of_one_worker_counts_for_another_one_and_goes_away(journal: Journal) -> None:
    here, there = Side(journal, ONE), Side(journal, TWO)
    sendings = [here.send(text, 1.0) for text in range(3)]
    assert {sending.backend for sending in sendings} == {"a", "b", "c"}
    there.strategy.choose(asked(9, 1.0), there.fleet)
    assert there.strategy.pending_tokens() == 3 * TOKENS
    sendings[0].visit.first_token(1.1)
    sendings[1].visit.ended(1.2, None, None, None)
    there.strategy.follow()
    assert there.strategy.pending_tokens() == TOKENS
    journal.reclaim(ONE, 1.3)
    there.strategy.follow()
    assert there.strategy.pending_tokens() == 0


def test_what_a_successor_sends_is_not_taken_for_what_the_dead_one_sent(journal: Journal) -> None:
    here, there = Side(journal, ONE), Side(journal, TWO)
    dead = here.send(1, 1.0)
    journal.reclaim(ONE, 1.1)
    successor = Side(journal, ONE)
    alive = successor.send(2, 1.2)
    there.strategy.choose(asked(9, 1.3), there.fleet)
    assert there.strategy.pending_tokens() == TOKENS
    dead.visit.first_token(1.4)
    there.strategy.follow()
    assert there.strategy.pending_tokens() == TOKENS
    alive.visit.first_token(1.5)
    there.strategy.follow()
    assert there.strategy.pending_tokens() == 0


def test_another_process_reads_what_this_one_writes(journal: Journal) -> None:
    texts = range(300)
    child = os.fork()
    if not child:  # whatever happens, this copy of the tests must not go on
        try:
            there = Side(Journal(journal.descriptor, 3), TWO)
            for text in texts:
                there.send(text, 1.0 + text, draw=text).visit.first_token(1.5 + text)
            os._exit(0)
        finally:
            os._exit(1)
    here = Side(journal, ONE)
    here.strategy.choose(asked(9999, 0.0), here.fleet)
    ended = (0, 0)
    while ended == (0, 0):  # reads while the other one writes
        here.strategy.follow()
        ended = os.waitpid(child, os.WNOHANG)
    assert ended == (child, 0)
    while here.strategy.follow():
        pass
    assert here.strategy.pending_tokens() == 0
    held = [here.strategy.held_tokens(asked(text), prompt(text)) for text in texts]
    assert [list(tokens.values()) for tokens in held] == [[TOKENS]] * len(texts)
    assert len({slot for tokens in held for slot in tokens}) == 3
