"""litellm against the router, as its two providers for such a server see it. Arguments: URL, key."""

import asyncio
import json
import sys
from typing import Any

import litellm

URL, KEY = sys.argv[1:3]
DOCUMENT = "A document for litellm, long enough for several blocks of the cache. " * 100
PROVIDERS = ("hosted_vllm", "openai")

litellm.suppress_debug_info = True


def options(provider: str, text: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": DOCUMENT}, {"role": "user", "content": text}]
    return {
        "model": f"{provider}/simulated-model",
        "api_base": f"{URL}/v1",
        "api_key": KEY,
        "messages": messages,
        "max_tokens": 5,
        "num_retries": 0,
    }


def try_out(provider: str) -> dict[str, Any]:
    answers: list[Any] = [litellm.completion(**options(provider, f"Question {n}?")) for n in range(4)]
    headers = [answer._hidden_params["additional_headers"] for answer in answers]
    pieces: Any = litellm.completion(**options(provider, "Stream?"), stream=True)
    streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    whole: Any = litellm.completion(**options(provider, "Stream?"))
    one: Any = asyncio.run(litellm.acompletion(**options(provider, "Later?")))
    return {
        "backends": [found["llm_provider-x-prefix-router-backend"] for found in headers],
        "same_text": streamed == whole.choices[0].message.content,
        "asynchronous": bool(one.choices[0].message.content),
        "error": refusal(provider),
    }


def refusal(provider: str) -> str:
    try:
        litellm.completion(**{**options(provider, "?"), "model": f"{provider}/absent"})
    except litellm.exceptions.NotFoundError as error:
        return type(error).__name__
    return "none"


print(json.dumps({provider: try_out(provider) for provider in PROVIDERS}))
