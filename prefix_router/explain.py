"""`explain`: which backend a request would go to, why, and which text decided it.

The same document for the command line (offline, on a fleet that has not been asked anything) and for
`POST /explain` (on the running fleet). It shows prompt text, and only to whoever sent that text.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import msgspec
from multidict import CIMultiDict

from prefix_router.build import backends_of, decider_of
from prefix_router.openai_api.request import RoutingRequest
from prefix_router.proxy.decider import Decider
from prefix_router.routing.decision import Decision, Query
from prefix_router.routing.explain import Explanation, explain
from prefix_router.routing.fleet import BackendState, Fleet, InFlight, Member
from prefix_router.routing.key import hashed_text, prefix_key
from prefix_router.routing.ring import Ring
from prefix_router.settings.model import Settings

SHOWN_CHARACTERS = 2000
"""How much of a long hashed text the command line shows, half from each end."""


def run(
    settings: Settings, body: bytes, path: str | None, headers: list[tuple[str, str]], as_json: bool
) -> int:
    """Explain a request on the configured fleet with nothing in flight; print it; return the exit status."""
    backends = backends_of(settings)
    ring = Ring({backend.name: backend.weight for backend in backends}, settings.routing.ring.virtual_nodes)
    members = (Member(backend, BackendState.STARTING, InFlight(), backend.models) for backend in backends)
    document = explanation_document(
        decider_of(settings),
        Fleet(tuple(members), ring),
        settings.routing.concurrency_threshold,
        body,
        path,
        headers,
    )
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        sys.stdout.write(_text(document))
    return 0


def explanation_document(
    decider: Decider,
    fleet: Fleet,
    concurrency_threshold: int,
    body: bytes,
    path: str | None,
    headers: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Return the explanation as plain values. `path` is guessed from the body when None."""
    fields = CIMultiDict(headers)
    fields.setdefault("Content-Type", "application/json")
    path = path or guess_path(body)
    subject = decider.read("POST", path, fields, body)
    request = decider.parse(path, fields, body)
    query = decider.query(subject, fleet, draw=0, now=monotonic(), count=False)
    explanation = explain(query, fleet, decider.strategy, concurrency_threshold)
    document: dict[str, Any] = {
        "path": path,
        "api": subject.api,
        "model": subject.model,
        "strategy": decider.strategy.name,
        **_key_part(decider, request, body, query),
        **_decision_part(explanation, fleet),
    }
    if subject.invalid_header is not None:
        document["refused"] = f"400: {subject.invalid_header} must be 1 to 64 printable ASCII characters"
    elif fleet.knows_no(subject.model):
        document["refused"] = f"404: no backend serves the model {subject.model!r}"
    elif explanation.decision is None:
        document["refused"] = "503: no backend can take the request now"
    return document


def _key_part(decider: Decider, request: RoutingRequest, body: bytes, query: Query) -> dict[str, Any]:
    if decider.depth is not None and query.key is not None:
        return {
            "key": f"{query.key:016x}",
            "prefix": {"depth": "auto", "unit": "tokens", "exact": False, "counted": query.key_tokens}
            | {"popular": query.popular_tokens, "prompt": query.chain.tokens if query.chain else 0},
        }
    key = prefix_key(request, decider.rule, body, decider.encoder)
    if key is None:
        cause = request.keyless_cause
        return {"key": None, "keyless_cause": cause.value if cause is not None else "unreadable"}
    rule = decider.rule
    return {
        "key": str(key),
        "prefix": {
            "depth": "fixed",
            "length": rule.length,
            "unit": rule.unit.value,
            "exact": decider.encoder is not None,
            "anchor": rule.anchor.value,
            "counted": key.counted,
            "ended_at": key.end.value,
        },
        "hashed_text": hashed_text(request, rule, body, decider.encoder),
    }


def _decision_part(explanation: Explanation, fleet: Fleet) -> dict[str, Any]:
    return {
        "decision": _decision(explanation.decision),
        "home": explanation.decision.home if explanation.decision is not None else None,
        "if_home_were_full": _decision(explanation.if_home_full),
        "if_home_were_down": _decision(explanation.if_home_down),
        "ring_order": [
            {
                "backend": name,
                "state": fleet.by_name[name].state.value,
                "in_flight": fleet.by_name[name].in_flight.count,
            }
            for name in explanation.ring_order
        ],
    }


def _decision(decision: Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    backend = decision.member.backend
    said = {"backend": backend.name, "url": backend.url, "reason": decision.reason.value}
    if decision.visit is None:
        return said
    return {**said, "expected_cached_tokens": decision.visit.expected_tokens}


def guess_path(body: bytes) -> str:
    """Return the path that a body like this is sent to, by its telling field; chat completions by default."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        if "messages" in fields:
            return "/v1/messages" if "system" in fields else "/v1/chat/completions"
        if "prompt" in fields:
            return "/v1/completions"
        if "input" in fields:
            return "/v1/responses"
    return "/v1/chat/completions"


def _text(document: Mapping[str, Any]) -> str:
    lines = [
        f"request    {document['path']} ({document['api']}), model {document['model'] or 'not named'}",
        f"key        {_key_text(document)}",
        f"backend    {_said(document['decision'])}",
        f"if full    {_said(document['if_home_were_full'])}",
        f"if down    {_said(document['if_home_were_down'])}",
    ]
    if document["ring_order"]:
        lines.append("ring       " + " → ".join(entry["backend"] for entry in document["ring_order"]))
    if "refused" in document:
        lines.append(f"refused    {document['refused']}")
    if document.get("hashed_text"):
        lines += ["hashed text", *(f"  {line}" for line in _shortened(document["hashed_text"]).splitlines())]
    return "\n".join(lines) + "\n"


def _key_text(document: Mapping[str, Any]) -> str:
    if document["key"] is None:
        return f"none: {document['keyless_cause']}"
    prefix = document["prefix"]
    if prefix["depth"] == "auto":
        return (
            f"{document['key']}, over {prefix['counted']} of {prefix['prompt']} tokens"
            f" (estimated; depth auto; {prefix['popular']} of them are a popular beginning)"
        )
    estimated = ", estimated" if prefix["unit"] == "tokens" and not prefix["exact"] else ""
    return (
        f"{document['key']}, over {prefix['counted']} {prefix['unit']}"
        f" (at most {prefix['length']}{estimated}; ended at {prefix['ended_at']})"
    )


def _said(decision: Mapping[str, Any] | None) -> str:
    if decision is None:
        return "–"
    expected = decision.get("expected_cached_tokens")
    cached = "" if expected is None else f", {expected} tokens expected in its cache"
    return f"{decision['backend']} ({decision['reason']}{cached}) {decision['url']}"


def _shortened(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text
    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]}\n[… {len(text) - SHOWN_CHARACTERS} characters …]\n{text[-half:]}"
