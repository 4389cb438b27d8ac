"""A broken rule, as the files of rules tell it to whoever collects them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, told at the first of `paths`. All of `paths` are the settings that it rests on."""

    paths: tuple[str, ...]
    message: str
