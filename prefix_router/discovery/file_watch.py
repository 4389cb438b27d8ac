"""Notices that a file is another one than before.

It looks at the file twice a second instead of being told by the kernel: that works the same on every file
system, network mounts included, and a look costs some ten microseconds, in a thread. What is compared belongs
to the file at the end of all links, so that three ways of changing a file are seen: writing to it, renaming
another one over it, and exchanging a directory above it, as Kubernetes does with the `..data` link of a
mounted ConfigMap.

A change counts once two looks in a row have seen the same: a file that is being written is not read halfway.
What was read must be compared with a look from before the reading, or a change in between is lost: hence
`SeenFile`, and `changes` compares with the look that it reported last.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """What tells one state of a file from another."""

    resolved: str
    device: int
    inode: int
    written_ns: int
    changed_ns: int
    """Also for another owner or mode, so that a file that could not be read is tried again."""
    bytes: int


def look(path: Path) -> Look | None:
    """Look at a file; None when there is none, or none that can be reached. Blocks as long as stat does."""
    try:
        resolved = os.path.realpath(path)
        status = os.stat(resolved)
    except OSError:
        return None
    return Look(
        resolved, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
    )


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as it was at some time: before it was read, if what was read is to be kept up to date."""

    path: Path
    look: Look | None

    @classmethod
    def now(cls, path: Path) -> SeenFile:
        """Look at a file. Blocks."""
        return cls(path, look(path))


async def changes(
    seen: SeenFile, look_seconds: float | None = None, repeat_seconds: float = math.inf
) -> AsyncGenerator[bool, None]:
    """Yield whenever the file is another one than it was: whether there is one. Never ends.

    look_seconds: between two looks; None for `LOOK_SECONDS`. repeat_seconds: after how long to yield although
    nothing has changed.
    """
    loop = asyncio.get_running_loop()
    known = seen.look
    while True:
        before, due = known, loop.time() + repeat_seconds
        while True:
            await asyncio.sleep(LOOK_SECONDS if look_seconds is None else look_seconds)
            now = await asyncio.to_thread(look, seen.path)
            if now == before and (now != known or loop.time() >= due):
                known = now
                break
            before = now
        yield known is not None
