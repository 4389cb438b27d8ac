"""From a request body to what routing wants to know about it.

`parse` reads any bytes and never raises. Its cost is one pass of msgspec over the body (about 0.5 µs/KB) that
builds next to nothing: the fields come out undecoded, and the prompt is a view that decodes turns when they
are asked for. What a client sends is not judged here. A body that vLLM would refuse gets no key and is passed
on, so that vLLM says what is wrong with it.

`parse_large` reads a large body in steps, so that others can run meanwhile, and finds the same.

A field of the wrong type counts as absent. Only members of the top-level object count, the last one if a
name comes twice, as in Python's own parser.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from prefix_router.openai_api import dialects
from prefix_router.openai_api.condense import Limits, condense
from prefix_router.openai_api.json_scan import ByteSource, Steps
from prefix_router.openai_api.prompt import Prompt
from prefix_router.openai_api.raw_json import lead, string

AFFINITY_HEADERS = ("X-Prefix-Router-Affinity-Id", "X-Amzn-SageMaker-Prefix-Aware-Id")
"""Headers that carry an affinity id; the first that is there counts."""

MAX_AFFINITY_ID_CHARACTERS = 64
MAX_PROMPT_CACHE_KEY_CHARACTERS = 128


class Api(Enum):
    """The API that a path belongs to. The values are metric labels."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash is a call in Python

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    """Anthropic messages."""
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SCORE = "score"
    POOLING = "pooling"
    CLASSIFY = "classify"
    TOKENIZE = "tokenize"
    """Rendering, tokenizing and counting: nothing is generated."""
    GENERATE = "generate"
    """vLLM's token-in, token-out API."""
    INVOCATIONS = "invocations"
    """SageMaker's path, which takes the body of any other API."""
    OTHER = "other"


class KeylessCause(Enum):
    """Why a request has no prompt to make a key from."""

    UNSUPPORTED_PATH = "unsupported_path"
    NOT_JSON = "not_json"
    """Another content type, or bytes that are not JSON."""
    NOT_AN_OBJECT = "not_an_object"
    NO_PROMPT = "no_prompt"
    """The field that should hold the prompt is absent, null, empty or of the wrong type."""
    UNREADABLE = "unreadable"
    """Nested too deep, or (found only when the key is made) a message that is not shaped like one."""
    TOO_LARGE = "too_large"
    """Finding the prompt in a large body would take too long: more members than anybody sends, say."""


class Headers(Protocol):
    """Request headers: all that is asked of them."""

    def get(self, name: str, /) -> str | None:
        """Return a header's value, whatever the case of its name; None if it is absent."""


class RoutingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What routing knows about a request.

    model: the model or adapter that is asked for. prompt: None when there is nothing to hash, and then
    `keyless_cause` says why. affinity_id: narrows the key, from a header or from `prompt_cache_key`.
    previous_response_id: the response that this one continues (Responses API). invalid_affinity_header: the
    name of an affinity header whose value is not 1 to 64 printable ASCII characters.
    """

    api: Api
    model: str | None = None
    stream: bool = False
    prompt: Prompt | None = None
    cache_salt: str | None = None
    affinity_id: str | None = None
    previous_response_id: str | None = None
    keyless_cause: KeylessCause | None = None
    invalid_affinity_header: str | None = None


_PromptReader = Callable[[dialects.Body], Prompt | None]

_ROUTES: dict[str, tuple[Api, _PromptReader]] = {
    "/v1/chat/completions": (Api.CHAT, dialects.chat),
    "/v1/chat/completions/render": (Api.TOKENIZE, dialects.chat),
    "/v1/completions": (Api.COMPLETIONS, dialects.plain),
    "/v1/completions/render": (Api.TOKENIZE, dialects.plain),
    "/v1/responses": (Api.RESPONSES, dialects.responses),
    "/v1/messages": (Api.MESSAGES, dialects.anthropic),
    "/v1/messages/count_tokens": (Api.TOKENIZE, dialects.anthropic),
    "/v1/embeddings": (Api.EMBEDDINGS, dialects.plain),
    "/rerank": (Api.RERANK, dialects.comparison),
    "/v1/rerank": (Api.RERANK, dialects.comparison),
    "/v2/rerank": (Api.RERANK, dialects.comparison),
    "/score": (Api.SCORE, dialects.comparison),
    "/v1/score": (Api.SCORE, dialects.comparison),
    "/generative_scoring": (Api.SCORE, dialects.comparison),
    "/pooling": (Api.POOLING, dialects.plain),
    "/classify": (Api.CLASSIFY, dialects.plain),
    "/tokenize": (Api.TOKENIZE, dialects.plain),
    "/inference/v1/generate": (Api.GENERATE, dialects.plain),
    "/invocations": (Api.INVOCATIONS, dialects.by_shape),
}
_KEYLESS_ROUTES = {
    # Several conversations in one body: there is no one backend that would be right for all of them.
    "/v1/chat/completions/batch": Api.CHAT,
    "/detokenize": Api.TOKENIZE,
}

KNOWN_PATHS = frozenset(_ROUTES) | frozenset(_KEYLESS_ROUTES)
"""Paths whose requests are read, without a slash at their end: a closed set, where paths are not."""

_body = msgspec.json.Decoder(dialects.Body)
_fields = msgspec.json.Decoder(dialects.Fields)


def parse(path: str, content_type: str | None, body: bytes | bytearray, headers: Headers) -> RoutingRequest:
    """Return what routing needs to know of a request. Never raises.

    path: without query; a trailing slash does not matter. content_type: the header's value; without one, a
    JSON body is read. body: must not change while the result is in use.
    """
    path = path.rstrip("/")
    api, read = _ROUTES.get(path) or (_KEYLESS_ROUTES.get(path, Api.OTHER), None)
    affinity_id, invalid_header = _affinity(headers)
    cause = KeylessCause.NOT_JSON
    if _is_json(content_type):
        try:
            return _read(api, read, body, affinity_id, invalid_header)
        except msgspec.ValidationError:
            cause = KeylessCause.NOT_AN_OBJECT
        except RecursionError:
            cause = KeylessCause.UNREADABLE
        except ValueError:
            pass
    return RoutingRequest(
        api=api,
        affinity_id=affinity_id,
        keyless_cause=cause if read is not None else KeylessCause.UNSUPPORTED_PATH,
        invalid_affinity_header=invalid_header,
    )


def parse_large(
    path: str,
    content_type: str | None,
    body: ByteSource,
    headers: Headers,
    head_bytes: int,
    limits: Limits | None = None,
) -> Steps[RoutingRequest]:
    """Return, in steps, what routing needs to know of a request with a large body. Never raises.

    As `parse` otherwise. head_bytes: how much of one text a key can cover. limits: see `condense`.
    """
    if not _is_json(content_type):
        return parse(path, content_type, b"", headers)
    condensed = yield from condense(body, head_bytes, limits)
    request = parse(path, content_type, condensed.body, headers)
    if not condensed.complete and request.keyless_cause is KeylessCause.NO_PROMPT:
        return msgspec.structs.replace(request, keyless_cause=KeylessCause.TOO_LARGE)
    return request


def _read(
    api: Api,
    read: _PromptReader | None,
    body: bytes | bytearray,
    affinity_id: str | None,
    invalid_header: str | None,
) -> RoutingRequest:
    """Return the request of a JSON object. Raises ValidationError for another value, or `UNDECODABLE`."""
    fields: dialects.Fields
    prompt = None
    try:
        fields = whole = _body.decode(body)
    except msgspec.ValidationError:
        fields = _fields.decode(body)  # `messages` is not an array, which costs the prompt and nothing else
    else:
        if read is not None:
            prompt = read(whole)
    cause = None
    if prompt is None:
        cause = KeylessCause.UNSUPPORTED_PATH if read is None else KeylessCause.NO_PROMPT
    if affinity_id is None and invalid_header is None:
        affinity_id = string(fields.prompt_cache_key)
        if affinity_id is not None and not 1 <= len(affinity_id) <= MAX_PROMPT_CACHE_KEY_CHARACTERS:
            affinity_id = None
    return RoutingRequest(
        api=api,
        model=string(fields.model) or None,
        stream=lead(fields.stream) == "t",
        prompt=prompt,
        cache_salt=string(fields.cache_salt),
        affinity_id=affinity_id,
        previous_response_id=string(fields.previous_response_id) or None,
        keyless_cause=cause,
        invalid_affinity_header=invalid_header,
    )


def _is_json(content_type: str | None) -> bool:
    if content_type is None or content_type == "application/json":
        return True
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type in ("", "application/json") or media_type.endswith("+json")


def _affinity(headers: Headers) -> tuple[str | None, str | None]:
    """Return the affinity id of the headers and the name of an invalid one; at most one of the two."""
    for name in AFFINITY_HEADERS:
        value = headers.get(name)
        if value is None:
            continue
        if value.isascii() and value.isprintable() and 1 <= len(value) <= MAX_AFFINITY_ID_CHARACTERS:
            return value, None
        return None, name
    return None, None
