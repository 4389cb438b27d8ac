"""The few requests that the router answers by itself on the data port.

`GET /v1/models` is the union over the backends that take traffic: each object as its backend wrote it
(`max_model_len`, `root` and whatever a later version adds stay), the first backend's copy where several
serve one model. `/health` and `/ping` say whether the fleet can take a request, for load balancers in front.
Everything else, known or not, goes to a backend.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import msgspec

from prefix_router.observe.events import Outcome
from prefix_router.openai_api.errors import ErrorCode
from prefix_router.proxy.decider import Subject
from prefix_router.proxy.fleet_store import FleetSource, ServedModel
from prefix_router.routing.fleet import BackendName

Served = Mapping[BackendName, tuple[ServedModel, ...] | None]

_MODELS_PREFIX = "/v1/models/"
HEALTH_PATHS = frozenset({"/health", "/ping"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response of the router's own. The body is JSON, or empty."""

    status: int
    body: bytes
    subject: Subject
    outcome: Outcome = Outcome.ANSWERED
    headers: tuple[tuple[bytes, bytes], ...] = ()


class LocalAnswers:
    """Answers from what the fleet store knows; never waits for a backend."""

    def __init__(self, store: FleetSource, refresh_models: Callable[[], Awaitable[None]]) -> None:
        """`refresh_models` asks backends for their models anew, bounded in time and rate."""
        self._store = store
        self._refresh_models = refresh_models

    async def refresh_models(self) -> None:
        """Ask the backends anew: an adapter may have been loaded since."""
        await self._refresh_models()

    def answer(self, method: str, path: str, *, closing: bool = False) -> Answer | None:
        """Return the answer to a request, None when it is for a backend.

        closing: the router is shutting down, and load balancers should look elsewhere.
        """
        if method not in ("GET", "HEAD"):
            return None
        if path == "/v1/models":
            return self._models()
        if path.startswith(_MODELS_PREFIX):
            return self._model(path.removeprefix(_MODELS_PREFIX))
        if path in HEALTH_PATHS:
            return self._health(closing)
        return None

    def _models(self) -> Answer | None:
        subject = Subject(api="models")
        served = self._store.served_models()
        objects = self._objects(served)
        if not objects:
            if served:
                return None  # nobody has been asked, or nobody has a list: let a backend say what it says
            code = ErrorCode.NO_BACKEND_AVAILABLE
            body = code.body("No backend is there to list its models. Try again shortly.")
            return Answer(code.status, body, subject, Outcome.REJECTED, ((b"Retry-After", b"1"),))
        return Answer(200, b'{"object":"list","data":[%b]}' % b",".join(objects.values()), subject)

    def _model(self, name: str) -> Answer | None:
        objects = self._objects(self._store.served_models())
        if not objects:
            return None
        subject = Subject(api="models")
        if (found := objects.get(unquote(name))) is not None:
            return Answer(200, found, subject)
        code = ErrorCode.MODEL_NOT_FOUND
        return Answer(code.status, code.body("The model does not exist."), subject, Outcome.REJECTED)

    def _objects(self, served: Served) -> dict[str, bytes]:
        """Model objects by id, the first backend's where several serve one."""
        objects: dict[str, bytes] = {}
        for name, models in served.items():
            for model in models or ():
                objects.setdefault(model.id, model.json)
            for declared in self._store.fleet.by_name[name].backend.models or ():
                objects.setdefault(declared, _declared(declared))
        return objects

    def _health(self, closing: bool) -> Answer:
        subject = Subject(api="health")
        if closing:
            code = ErrorCode.DRAINING
            body = code.body("The router is shutting down.")
            return Answer(code.status, body, subject, Outcome.REJECTED)
        if self._store.fleet.in_service():
            return Answer(200, b"", subject)
        code = ErrorCode.NO_BACKEND_AVAILABLE
        return Answer(code.status, code.body("No backend can take a request now."), subject, Outcome.REJECTED)


def _declared(model: str) -> bytes:
    return msgspec.json.encode({"id": model, "object": "model", "owned_by": "vllm"})
