"""The exact token ids of a request, as vLLM will see them; or None.

    /v1/completions              a text, with the special tokens that the tokenizer adds; or ids, as they are
    /v1/chat/completions         the model's chat template (`chat_template`), tokenized without special tokens
    /inference/v1/generate       ids, as they are

Of several prompts in one body the first one counts. None for everything of which it is not certain what
vLLM makes of it; the caller then has an approximate index to ask.

This costs real time: the whole prompt is decoded, rendered and tokenized, about 0.3 µs for each byte of the
body (`python -m benchmarks.kv_events`). So a body of up to `AT_ONCE_BYTES` is read at once, which takes the
event loop 1 ms at most; a longer one in a thread, in which the tokenizer lets go of the interpreter; one of
more than `MOST_BYTES` not at all. No more than `MOST_WAITING` are in threads: a request beyond that is
better off with an approximate answer now than with an exact one later.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from prefix_router.kv_events.chat_template import ChatTemplate, NotRenderableError
from prefix_router.kv_events.events import pack
from prefix_router.openai_api.request import Api
from prefix_router.tokenization import TokenizerError, load_tokenizer

AT_ONCE_BYTES = 4096
MOST_BYTES = 4 << 20
MOST_WAITING = 8
_THREADS = 2

_CHANGES_PROMPT = ("prompt_embeds", "suffix", "truncate_prompt_tokens", "mm_processor_kwargs", "features")
_CHANGES_CHAT = (
    *("chat_template", "continue_final_message", "truncate_prompt_tokens", "mm_processor_kwargs"),
    *("media_io_kwargs", "kv_transfer_params", "functions", "function_call"),
)

_body = msgspec.json.Decoder(dict[str, Any])


class PromptTokens:
    """One model's tokenizer and chat template. Close it when it is no longer used."""

    def __init__(self, tokenizer: Path) -> None:
        """Read `tokenizer.json` and what lies beside it. Raises TokenizerError."""
        self._tokenizer = load_tokenizer(tokenizer)
        try:
            self._template = ChatTemplate.load(tokenizer.parent)
        except (OSError, ValueError, KeyError, TypeError, jinja2.TemplateError) as error:
            raise TokenizerError(f"cannot use the chat template beside {tokenizer}: {error}") from error
        self._threads = ThreadPoolExecutor(_THREADS, "prompt-tokens")
        self._waiting = 0

    def close(self) -> None:
        """Let the threads end; what waits for one is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(self, api: Api, body: bytes) -> bytes | None:
        """Return the ids of a request's prompt, packed, or None. Never raises but for being cancelled."""
        if len(body) <= AT_ONCE_BYTES:
            return self.tokens(api, body)
        if len(body) > MOST_BYTES or self._waiting >= MOST_WAITING:
            return None
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self.tokens, api, body)
        finally:
            self._waiting -= 1

    def tokens(self, api: Api, body: bytes) -> bytes | None:
        """Return the same at once."""
        try:
            fields = _body.decode(body)
            if api is Api.CHAT:
                return self._chat(fields)
            if api in (Api.COMPLETIONS, Api.GENERATE):
                return self._plain(fields)
        except (NotRenderableError, ValueError, TypeError, OverflowError, RecursionError):
            pass
        return None

    def _chat(self, fields: dict[str, Any]) -> bytes | None:
        if self._template is None or any(fields.get(name) for name in _CHANGES_CHAT):
            return None
        text = self._template.render(fields)
        return self._encoded(text, special=fields.get("add_special_tokens", False))

    def _plain(self, fields: dict[str, Any]) -> bytes | None:
        if any(fields.get(name) is not None for name in _CHANGES_PROMPT):
            return None
        prompt = fields.get("prompt", fields.get("token_ids"))
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return self._encoded(prompt, special=fields.get("add_special_tokens", True))
        return pack(prompt) if isinstance(prompt, list) else None

    def _encoded(self, text: str, *, special: bool) -> bytes:
        return pack(self._tokenizer.encode(text, add_special_tokens=bool(special)).ids)
