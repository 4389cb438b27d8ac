"""Hands each event to several observers.

An observer must not raise; should one do so anyway, its mistake stays its own: the other observers get the
event and the request goes on. The first failure of an observer is logged with its traceback, later ones are
not, so that a broken observer under load does not become a second problem.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from prefix_router.observe.events import BackendChanged, EngineSample, Observer, RequestRecord

logger = logging.getLogger(__name__)

_Event = TypeVar("_Event")


class Fanout:
    """Several observers as one, asked in the order given."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        self._failed: set[int] = set()

    def join(self, observer: Observer) -> None:
        """Tell one more observer from now on, after the others."""
        self._observers = (*self._observers, observer)

    def leave(self, observer: Observer) -> None:
        """Tell an observer nothing more; it need not be one of these."""
        self._observers = tuple(other for other in self._observers if other is not observer)

    def request_finished(self, event: RequestRecord) -> None:
        """Tell all observers."""
        for observer in self._observers:
            try:  # not by `_tell`: this is done for every request
                observer.request_finished(event)
            except Exception:  # noqa: BLE001  (`_note` logs it)
                self._note(observer)

    def backend_changed(self, event: BackendChanged) -> None:
        """Tell all observers."""
        for observer in self._observers:
            self._tell(observer, observer.backend_changed, event)

    def engine_sampled(self, event: EngineSample) -> None:
        """Tell all observers."""
        for observer in self._observers:
            self._tell(observer, observer.engine_sampled, event)

    def _tell(self, observer: Observer, method: Callable[[_Event], None], event: _Event) -> None:
        try:
            method(event)
        except Exception:  # noqa: BLE001  (`_note` logs it)
            self._note(observer)

    def _note(self, observer: Observer) -> None:
        if id(observer) not in self._failed:
            self._failed.add(id(observer))
            logger.exception("observer %s failed; further failures of it are not logged", observer)
