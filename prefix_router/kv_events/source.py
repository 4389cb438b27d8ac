"""Where the KV events of a backend are: one source for each of its data-parallel engines. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_router.routing.fleet import BackendName


@dataclass(frozen=True, slots=True)
class Source:
    """Where the events of one engine are. replay: None when it has no socket for that."""

    backend: BackendName
    rank: int
    endpoint: str
    replay: str | None = None


def sources_of(
    backend: BackendName, endpoint: str, replay: str | None = None, ranks: int = 1
) -> tuple[Source, ...]:
    """Return the sources of a backend with `ranks` engines, whose ports count up from those of the first.

    endpoint, replay: `tcp://host:port`. vLLM counts so: rank r publishes on the port + r.
    """
    return tuple(
        Source(
            backend, rank, _counted_up(endpoint, rank), None if replay is None else _counted_up(replay, rank)
        )
        for rank in range(ranks)
    )


def _counted_up(address: str, rank: int) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + rank}"
