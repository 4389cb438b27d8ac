"""Warns in the log when a backend that should be warm answers cold, and says when that is over.

An observer for strategies that expect something of a backend's cache; with others nobody need ask it. What is
said, and how often at most, is decided in `observe.cold_spells`. A line has the backend and two counts, never
anything of a prompt. docs/operations.md says what to do about it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from prefix_router.observe.cold_spells import ColdSpells
from prefix_router.observe.expectation import compare
from prefix_router.routing.fleet import BackendState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prefix_router.observe.events import BackendChanged, EngineSample, RequestRecord
    from prefix_router.routing.fleet import BackendName

logger = logging.getLogger(__name__)


class ColdWarning:
    """An Observer that logs a line when a spell begins, once a minute while it lasts, and when it ends.

    clock: seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spells = ColdSpells()

    def set_backends(self, names: Iterable[BackendName]) -> None:
        """Watch exactly these backends from now on."""
        self._spells.set_backends(names)

    def request_finished(self, event: RequestRecord) -> None:
        """Take one answer as evidence."""
        if event.backend is None:
            return
        comparison = compare(event)
        if comparison is None:
            return
        finding = self._spells.note(event.backend, comparison, self._clock())
        if finding is None:
            return
        logger.log(
            logging.INFO if finding.over else logging.WARNING,
            "backend no longer answers cold" if finding.over else "backend should be warm but answers cold",
            extra={
                "fields": {
                    "backend": event.backend,
                    "cold_requests": finding.cold,
                    "of_requests": finding.requests,
                }
            },
        )

    def backend_changed(self, event: BackendChanged) -> None:
        """Forget what was seen of an engine that is gone."""
        if event.after is BackendState.DOWN:
            self._spells.restarted(event.backend)

    def engine_sampled(self, event: EngineSample) -> None:
        """Samples say nothing about single requests."""
