from __future__ import annotations

import asyncio

import pytest

from prefix_router.proxy.blocks import BLOCK_BYTES, Blocks


def filled(*pieces: bytes) -> Blocks:
    blocks = Blocks()
    for piece in pieces:
        blocks.append(piece)
    return blocks


def data(size: int) -> bytes:
    return bytes(at % 251 for at in range(size))


@pytest.mark.parametrize("piece_bytes", [1000, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
def test_bytes_come_out_as_they_came_in(piece_bytes: int) -> None:
    whole = data(2 * BLOCK_BYTES + 5)
    blocks = filled(*(whole[at : at + piece_bytes] for at in range(0, len(whole), piece_bytes)))
    assert len(blocks) == len(whole)
    assert [len(block) for block in blocks] == [BLOCK_BYTES, BLOCK_BYTES, 5]
    assert b"".join(blocks) == whole


@pytest.mark.parametrize(
    ("at", "size"),
    [
        (0, 0),
        (0, 10),
        (BLOCK_BYTES - 3, 6),
        (BLOCK_BYTES, 1),
        (5, 2 * BLOCK_BYTES),
        (2 * BLOCK_BYTES, 100),
        (2 * BLOCK_BYTES + 5, 1),
        (0, 10 * BLOCK_BYTES),
    ],
)
def test_any_part_can_be_read(at: int, size: int) -> None:
    whole = data(2 * BLOCK_BYTES + 5)
    assert filled(whole).read(at, size) == whole[at : at + size]


def test_nothing_is_nothing() -> None:
    assert (len(filled(b"")), list(filled()), filled().read(0, 1)) == (0, [], b"")


async def test_much_is_let_go_of_by_and_by() -> None:
    blocks = filled(data(BLOCK_BYTES)[:1] * (10 * BLOCK_BYTES))
    held = blocks._blocks
    blocks.free()
    assert (len(blocks), blocks.read(0, 1)) == (0, b"")
    left = []
    while held:
        left.append(len(held))
        await asyncio.sleep(0)
    assert left == [6, 2]
