"""Captures traffic: one line for each request, for `prefix-router analyze`. Off unless it is asked for.

`Capture` is an observer. While it captures, it puts each finished request that has a chain into a bounded
queue; a thread makes the line (`capture_line`), which costs more than everything else that observers do, and
writes it. What does not fit the queue or the file, or cannot be written, is dropped and counted, and said
once: the router never waits for a disk, and never fills one.

Each start makes a new file, readable by its owner only, because its key is new as well: what is there already
is neither overwritten nor continued, the next file gets a number before its ending. With several workers
their pool does it, so there is one file.

A sample takes whole conversations, told by how their first prompts end, and not single requests: half of
each conversation would look like traffic that shares half as much. Never holds or writes prompt text.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

import msgspec

from prefix_router.observe.capture_line import KEY_BYTES, CaptureHead, Names

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedWriter

    from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord
    from prefix_router.routing.chain import PrefixChain

logger = logging.getLogger(__name__)

QUEUE_REQUESTS = 4096
"""Requests that wait for the writer at most; a few MB."""

MOST_FILES = 1000
"""Numbers that are tried for the name of a new file."""

_NAMES = 2**64


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """path: of the file. max_bytes: its largest size. sample: the part of the conversations, above 0 to 1."""

    path: str
    max_bytes: int
    sample: float = 1.0


@dataclass(frozen=True, slots=True)
class _Entry:
    record: RequestRecord
    chain: PrefixChain
    time: float


class Capture:
    """An Observer that captures from `begin` to `end`. All methods but `close` return at once.

    wall_clock: Unix seconds. dropped: requests that should have been captured and were not.
    """

    def __init__(
        self, wall_clock: Callable[[], float] = time.time, queue_requests: int = QUEUE_REQUESTS
    ) -> None:
        self._wall_clock = wall_clock
        self._queue_requests = queue_requests
        self._writer: _Writer | None = None
        self._ended: list[_Writer] = []
        self._dropped_before = 0

    @property
    def dropped(self) -> int:
        """Requests lost so far."""
        return self._dropped_before + sum(writer.dropped for writer in self._writers())

    def begin(self, options: CaptureOptions) -> None:
        """Capture to a new file from now on. What is wrong with the file is logged, and requests are
        dropped."""
        self.end()
        self._writer = _Writer(options, self._queue_requests)

    def end(self) -> None:
        """Capture no further request; what has been taken is written soon."""
        if self._writer is not None:
            self._writer.finish()
            self._ended.append(self._writer)
            self._writer = None
        for writer in [writer for writer in self._ended if not writer.is_alive]:
            self._dropped_before += writer.dropped
            self._ended.remove(writer)

    def close(self, timeout_seconds: float = 2.0) -> None:
        """End, and wait until all is written. Blocks, but not for longer than `timeout_seconds` for a
        file."""
        self.end()
        for writer in self._ended:
            writer.join(timeout_seconds)

    def request_finished(self, event: RequestRecord) -> None:
        """Take one request, if it was sent to a backend and has a chain."""
        writer, chain = self._writer, event.chain
        if writer is None or chain is None or event.backend is None:
            return
        if chain.ends[0].name < writer.options.sample * _NAMES:
            writer.put(_Entry(event, chain, self._wall_clock() - event.duration_seconds))

    def backend_changed(self, event: BackendChanged) -> None:
        """Nothing that is captured."""

    def engine_sampled(self, event: EngineSample) -> None:
        """Nothing that is captured."""

    def _writers(self) -> list[_Writer]:
        return self._ended if self._writer is None else [*self._ended, self._writer]


class _Writer:
    """One file and the thread that writes it. `dropped` is counted on both sides, each its own."""

    def __init__(self, options: CaptureOptions, queue_requests: int) -> None:
        self.options = options
        self._most = queue_requests
        self._entries: SimpleQueue[_Entry | None] = SimpleQueue()
        self._refused = 0
        self._unwritten = 0
        self._thread = Thread(target=self._run, name="capture-writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._refused + self._unwritten

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def put(self, entry: _Entry) -> None:
        if self._entries.qsize() < self._most:
            self._entries.put(entry)
            return
        if not self._refused:
            logger.warning("capture: the writer is behind, requests are missing in the file")
        self._refused += 1

    def finish(self) -> None:
        self._entries.put(None)

    def join(self, timeout_seconds: float) -> None:
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            self._write()
        except OSError as error:
            logger.error("capture to %s: %s; nothing more is captured", self.options.path, error.strerror)
        while self._entries.get() is not None:
            self._unwritten += 1

    def _write(self) -> None:
        """Write what comes until it is told to finish, or the file is full. Raises OSError."""
        options = self.options
        path, file = _create(Path(options.path))
        logger.info("capturing traffic to %s", path)
        names, encode = Names(os.urandom(KEY_BYTES)), msgspec.json.Encoder().encode
        with file:
            size = file.write(encode(CaptureHead(sample=options.sample)) + b"\n")
            while (entry := self._entries.get()) is not None:
                line = encode(names.line_of(entry.record, entry.chain, entry.time)) + b"\n"
                if size + len(line) > options.max_bytes:
                    self._unwritten += 1
                    logger.warning("capture: %s is full, nothing more is captured", path)
                    return
                size += file.write(line)
                if self._entries.empty():
                    file.flush()
        self._entries.put(None)  # for `_run`, which looks for the end as well


def _create(wanted: Path) -> tuple[Path, BufferedWriter]:
    """A new file that only its owner may read, with a number in its name if need be. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for number in range(1, MOST_FILES + 1):
        path = wanted if number == 1 else wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
        try:
            return path, os.fdopen(os.open(path, flags, 0o600), "wb")
        except FileExistsError:
            continue
    raise FileExistsError(None, f"there are {MOST_FILES} captures already")
