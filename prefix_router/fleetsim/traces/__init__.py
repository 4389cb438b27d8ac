"""Recorded traffic as requests: three public formats, told apart by what is in the file.

Nothing says what an answer looks like in the next prompt, so the blocks of outputs are not reused.
"""

from __future__ import annotations

from prefix_router.fleetsim.traces.errors import TraceError
from prefix_router.fleetsim.traces.read import read_arrivals, read_trace

__all__ = ["TraceError", "read_arrivals", "read_trace"]
