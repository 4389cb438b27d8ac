"""One HTTP request as the engine gets it: an engine request, and the words to come, for each answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from prefix_router.engine.block_hash import BYTES_PER_TOKEN, hash_blocks
from prefix_router.engine.request import EngineRequest
from prefix_router.simulate import tokens
from prefix_router.simulate.errors import InvalidRequestError
from prefix_router.simulate.reply import Answer, Usage

if TYPE_CHECKING:
    from prefix_router.simulate.asks import Ask
    from prefix_router.simulate.settings import StandInSettings


@dataclass(frozen=True, slots=True)
class Job:
    """Engine requests and the tokens of their answers, prompt by prompt."""

    requests: tuple[EngineRequest, ...]
    outputs: tuple[bytes, ...]
    answers_per_prompt: int
    finish_reason: str

    def text(self, index: int, start: int, end: int) -> str:
        """The text of answer `index` from token `start` to token `end`."""
        return tokens.decode(self.outputs[index][start * BYTES_PER_TOKEN : end * BYTES_PER_TOKEN])

    def answers(self) -> list[Answer]:
        """The finished answers."""
        return [Answer(tokens.decode(output), self.finish_reason) for output in self.outputs]

    def usage(self) -> Usage:
        """Token counts. Cached tokens are known once the requests have been admitted."""
        one_per_prompt = self.requests[:: self.answers_per_prompt]
        return Usage(
            prompt_tokens=sum(request.prompt_tokens for request in one_per_prompt),
            output_tokens=sum(request.output_tokens for request in self.requests),
            cached_tokens=sum(request.cached_tokens for request in one_per_prompt),
        )


def plan(ask: Ask, model: str, settings: StandInSettings) -> Job:
    """The job that `ask` is. Raises InvalidRequestError when it does not fit the context.

    Model (or adapter) and cache salt decide what the first block chains to, so nothing is shared across
    them, as in vLLM. A 32 KB prompt takes about 0.2 ms.
    """
    parent = xxhash.xxh3_64_intdigest(f"{model}\0{ask.cache_salt}".encode())
    requests = []
    outputs = []
    finish_reason = ""
    for prompt in ask.prompts:
        finish_reason, answers = _write(ask, prompt, settings)
        for output in answers:
            hashes = hash_blocks(prompt + output, settings.block_size, parent)
            requests.append(EngineRequest(tokens.count(prompt), tokens.count(output), hashes))
            outputs.append(output)
    return Job(
        requests=tuple(requests),
        outputs=tuple(outputs),
        answers_per_prompt=ask.answers,
        finish_reason=finish_reason,
    )


def _write(ask: Ask, prompt: bytes, settings: StandInSettings) -> tuple[str, list[bytes]]:
    """Why the answers to `prompt` end, and their tokens."""
    prompt_tokens = tokens.count(prompt)
    output_tokens = _output_tokens(prompt_tokens, ask.max_tokens, settings)
    seed = settings.seed + xxhash.xxh3_64_intdigest(prompt)
    formed = ask.form.text(seed)
    if formed is None:
        finish_reason = "stop" if ask.max_tokens is None else "length"
        return finish_reason, [tokens.generate(seed + answer, output_tokens) for answer in range(ask.answers)]
    # A form ends by itself, where words go on to the limit; a limit before its end cuts it.
    whole = tokens.encode(formed)
    longest = ask.max_tokens or settings.context_tokens - prompt_tokens
    finish_reason = "stop" if tokens.count(whole) <= longest else "length"
    return finish_reason, [whole[: longest * BYTES_PER_TOKEN]] * ask.answers


def _output_tokens(prompt_tokens: int, max_tokens: int | None, settings: StandInSettings) -> int:
    """A limit is used up, as by a model that never stops; without one the model stops by itself."""
    room = settings.context_tokens - prompt_tokens
    wanted = max_tokens or 1
    if wanted > room:
        raise InvalidRequestError(
            f"this model's maximum context length is {settings.context_tokens} tokens, but the prompt has "
            f"{prompt_tokens} tokens and {wanted} more were asked for",
            "max_tokens" if room > 0 else "prompt",
        )
    return max_tokens or min(settings.output_tokens, room)
