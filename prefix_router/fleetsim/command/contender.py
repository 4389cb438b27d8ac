"""One way to route, as it is written on the command line: a strategy, and perhaps how deep its keys look.

`prefix_aware` looks as deep as the whole comparison does (`--prefix-tokens`), `prefix_aware:4096` at 4,096
tokens, `prefix_aware:auto` where popular beginnings branch (`routing.depth`). So one table can have several
depths of one strategy. A strategy that makes no key of its own from the plan, or chooses its own depth, has
no such ending: it would change nothing, and look as if it did.
"""

from __future__ import annotations

from dataclasses import dataclass

from prefix_router.fleetsim.policies import KEYED_NAMES, POLICY_NAMES

AUTO = "auto"


class ContenderError(ValueError):
    """What was written stands for nothing."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A strategy and its depth. label: as it was written. prefix_tokens: None for the comparison's own."""

    label: str
    strategy: str
    prefix_tokens: int | None = None
    depth_auto: bool = False


def parse_contender(text: str) -> Contender:
    """`NAME`, `NAME:auto` or `NAME:TOKENS`. Raises ContenderError."""
    name, colon, depth = text.partition(":")
    if name not in POLICY_NAMES:
        raise ContenderError(f"there is no strategy {name!r}; there are {', '.join(POLICY_NAMES)}")
    if not colon:
        return Contender(text, name)
    if name not in KEYED_NAMES:
        raise ContenderError(f"{name} has no depth to set; {', '.join(KEYED_NAMES)} have")
    if depth == AUTO:
        return Contender(text, name, depth_auto=True)
    if not (depth.isascii() and depth.isdecimal() and int(depth) >= 1):
        raise ContenderError(f"the depth of {name} is {AUTO} or a number of tokens, not {depth!r}")
    return Contender(text, name, int(depth))
