"""Which backend produced which response, so that what continues it goes back there.

The Responses API keeps state in the engine: a request with `previous_response_id`, or a look at
`/v1/responses/{id}`, is only understood by the replica that made that response. The memory is bounded;
the oldest entries are forgotten first, and a forgotten one is routed like any other request.
"""

from __future__ import annotations

from collections import OrderedDict

from prefix_router.routing.fleet import BackendName

CAPACITY = 65_536
_MAX_ID_LENGTH = 256


class Continuations:
    """A bounded map from response id to backend name. O(1)."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._backends: OrderedDict[str, BackendName] = OrderedDict()

    def __len__(self) -> int:
        return len(self._backends)

    def remember(self, response_id: str, backend: BackendName) -> None:
        """Note that `backend` produced the response."""
        if len(response_id) > _MAX_ID_LENGTH:
            return
        self._backends[response_id] = backend
        self._backends.move_to_end(response_id)
        if len(self._backends) > self._capacity:
            self._backends.popitem(last=False)

    async def recall(self, response_id: str) -> None:
        """Learn which backend produced the response from whoever may know. Here nobody knows more."""

    def backend(self, response_id: str) -> BackendName | None:
        """Return the backend that produced the response, None when that is not known (any more)."""
        return self._backends.get(response_id)
