"""What `/tokenize` of a scriptable backend answers: ids that follow from the text, as vLLM's would.

Some routers post each prompt there to learn its tokens before they choose a backend; without an answer their
prefix policies have nothing to work with. A token is four characters of the prompt; as in vLLM, an image is
a placeholder of which the ids say nothing.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from conformance.prefix_cache import CHARACTERS_PER_TOKEN

VOCABULARY = 50_000


def tokenize(body: bytes) -> bytes | None:
    """Return the answer to a request body; None when there is no prompt in it."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    text = _prompt(document) if isinstance(document, dict) else None
    if text is None:
        return None
    data = text.encode("utf-8", "replace")
    ids = [
        zlib.crc32(data[at : at + CHARACTERS_PER_TOKEN]) % VOCABULARY
        for at in range(0, len(data), CHARACTERS_PER_TOKEN)
    ]
    answer = {"count": len(ids), "max_model_len": 1 << 20, "tokens": ids, "token_strs": None}
    return json.dumps(answer).encode()


def _prompt(document: dict[str, Any]) -> str | None:
    if isinstance(prompt := document.get("prompt"), str):
        return prompt
    messages = document.get("messages")
    if not isinstance(messages, list):
        return None
    tools = document.get("tools")
    rendered = [json.dumps(tools)] if tools else []
    for message in messages:
        if isinstance(message, dict):
            calls = message.get("tool_calls")
            rendered.append(f"<{message.get('role')}>{_text(message.get('content'))}")
            rendered.append(json.dumps(calls) if calls else "")
    return "".join(rendered)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(str(part.get("text", "<image>")) for part in content if isinstance(part, dict))
