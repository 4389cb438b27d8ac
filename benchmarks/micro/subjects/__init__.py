"""What is measured, a module for each subject; each has `cases()`."""

from __future__ import annotations

SUBJECTS = ("key", "ring", "decision", "adaptive", "headers", "upstream", "sse", "metrics")
"""The modules of this package, in the order in which a request meets them."""
