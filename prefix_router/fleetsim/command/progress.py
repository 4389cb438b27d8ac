"""A progress bar on a terminal; elsewhere, silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import TracebackType

_CELLS = 30


class ProgressBar:
    """One line that is drawn over itself, and gone when something else is to be printed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()
        self._line = ""

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the bar away until it is drawn again."""
        if self._line:
            self._stream.write("\r" + " " * len(self._line) + "\r")
            self._stream.flush()
            self._line = ""

    def show(self, share: float, what: str) -> None:
        """Draw `share`, from 0 to 1, of the work on `what`."""
        filled = int(share * _CELLS)
        line = f"[{'#' * filled}{'.' * (_CELLS - filled)}] {share:4.0%} {what}"
        if self._shown and line != self._line:
            self._stream.write("\r" + line.ljust(len(self._line)))
            self._stream.flush()
            self._line = line
