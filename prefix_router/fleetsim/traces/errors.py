"""What is wrong with a trace."""

from __future__ import annotations


class TraceError(Exception):
    """A file that is no trace. The message names the file and, where there is one, the line."""
