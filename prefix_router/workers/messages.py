"""What the pool and its workers say to each other. Values only; `workers.channel` carries them.

The pool knows the fleet, its health and its models, and tells every worker the same. Workers know what
happens to requests, and tell the pool. Nothing here holds prompt text.
"""

from __future__ import annotations

from msgspec import Struct

from prefix_router.observe.events import RequestRecord
from prefix_router.proxy.fleet_store import ServedModel
from prefix_router.routing.fleet import Backend, BackendName, BackendState
from prefix_router.routing.health import HealthEvent
from prefix_router.settings.model import Settings


class MemberView(Struct, frozen=True, array_like=True):
    """One backend of a fleet. served: what its `/v1/models` lists. slot: its row in the shared counts."""

    backend: Backend
    served: tuple[ServedModel, ...] | None
    state: BackendState
    draining: bool
    slot: int


class FleetView(Struct, frozen=True, tag="fleet"):
    """A whole fleet, to be put in place of the one before. `version` only ever grows."""

    version: int
    virtual_nodes: int
    members: tuple[MemberView, ...]


class Begin(Struct, frozen=True, tag="begin"):
    """First message to a worker.

    process: its column in the shared counts. bells: descriptors of `SharedCounts.bells`. journal: of the
    journal's memory. listeners: of the sockets it accepts on.
    """

    settings: Settings
    process: int
    bells: tuple[int, ...]
    journal: int
    listeners: tuple[int, ...]
    fleet: FleetView


class Reconfigure(Struct, frozen=True, tag="reconfigure"):
    """Take over these settings and this fleet in one step."""

    settings: Settings
    fleet: FleetView


class Stop(Struct, frozen=True, tag="stop"):
    """Drain as `shutdown` says, and exit. After the first one, each further one cuts at once."""

    grace_seconds: float
    delay_seconds: float


class Tell(Struct, frozen=True, tag="tell"):
    """Send a `Report` with this number now."""

    number: int


class ModelsRefreshed(Struct, frozen=True, tag="models-refreshed"):
    """The backends have been asked for their models; whatever is new is in a `FleetView` sent before."""


class Continues(Struct, frozen=True, tag="continues"):
    """Answer to `Recall`: which backend made the response, None when nobody knows."""

    response_id: str
    backend: BackendName | None


class Ready(Struct, frozen=True, tag="ready"):
    """The worker accepts connections."""


class Failed(Struct, frozen=True, tag="failed"):
    """The worker cannot start, and why. It exits."""

    cause: str


class Confirmed(Struct, frozen=True, tag="confirmed"):
    """From now on the worker decides on this version of the fleet, and on the settings that came with it."""

    version: int


class Evidence(Struct, frozen=True, array_like=True):
    """What a request showed about a backend; fields as for `FleetStore.report`."""

    name: BackendName
    url: str
    event: HealthEvent
    cause: str
    suspect: int | None


class Report(Struct, frozen=True, tag="report"):
    """What has happened since the last one.

    active: requests that run now. waiting: how many of them wait for a free backend. lost: requests that
    ended and could not be reported. answers: the number of the `Tell` that asked for it.
    """

    active: int
    waiting: int
    finished: list[RequestRecord]
    evidence: list[Evidence]
    lost: int = 0
    answers: int | None = None


class RefreshModels(Struct, frozen=True, tag="refresh-models"):
    """Ask the backends for their models; answered with `ModelsRefreshed`."""


class Remember(Struct, frozen=True, tag="remember"):
    """A backend made a response that later requests may continue."""

    response_id: str
    backend: BackendName


class Recall(Struct, frozen=True, tag="recall"):
    """Which backend made this response? Answered with `Continues`."""

    response_id: str


ToWorker = Begin | FleetView | Reconfigure | Stop | Tell | ModelsRefreshed | Continues
ToPool = Ready | Failed | Confirmed | Report | RefreshModels | Remember | Recall
