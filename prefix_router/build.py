"""From settings to the parts of the decision. Used by the server and by offline commands alike."""

from __future__ import annotations

from prefix_router.proxy.decider import Decider
from prefix_router.routing.fleet import Backend, BackendName
from prefix_router.routing.key import PrefixAnchor, PrefixRule, PrefixUnit
from prefix_router.routing.strategies import build_strategy
from prefix_router.settings.model import Settings


def backends_of(settings: Settings) -> list[Backend]:
    """Return the configured backends, in configuration order."""
    return [
        Backend(
            BackendName(backend.name),
            backend.url,
            backend.weight,
            None if backend.models is None else frozenset(backend.models),
        )
        for backend in settings.backends
    ]


def decider_of(settings: Settings) -> Decider:
    """Return what reads requests and decides. Raises TokenizerError for an unusable tokenizer file."""
    routing = settings.routing
    encoder = None
    if routing.prefix.tokenizer is not None:
        from prefix_router.tokenization import HeadTokenizer

        encoder = HeadTokenizer(routing.prefix.tokenizer)
    prefix = routing.prefix
    return Decider(
        build_strategy(routing.strategy.value, concurrency_threshold=routing.concurrency_threshold),
        PrefixRule(prefix.length, PrefixUnit(prefix.unit.value), PrefixAnchor(prefix.anchor.value)),
        encoder,
        session_header=routing.session.header,
        session_cookie=routing.session.cookie,
    )
