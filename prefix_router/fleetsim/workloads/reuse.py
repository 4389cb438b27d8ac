"""Texts that are used several times within a while: the order of their uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def uses_in_order(count: int, uses: int, active: int, random: Random) -> list[int]:
    """The numbers of the texts that `count` requests are about, text 0 first and `uses` of each.

    active: how many texts are in use at about the same time. All uses of a text fall within the time in which
    that many others come up, at random. The last text may have fewer uses.
    """
    due = sorted((number // uses + random.uniform(0, active), number // uses) for number in range(count))
    renamed: dict[int, int] = {}
    return [renamed.setdefault(text, len(renamed)) for _, text in due]
