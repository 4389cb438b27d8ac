"""How a stand-in vLLM is set up, as flags of a command or as a value in a test."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from prefix_router.engine.cost import DEFAULT_PROFILE, PROFILES

LARGEST_MODEL_LEN = 131_072
"""Context length of the models behind the profiles."""


@dataclass(frozen=True, slots=True)
class StandInSettings:
    """One stand-in vLLM.

    models: the served model first, then its LoRA adapters.
    time_scale: simulated seconds per second of wall clock.
    kv_tokens: size of the KV cache, or None for the profile's.
    max_model_len: longest prompt and output together, in tokens; None for what model and cache allow.
    max_num_queued_reqs: requests in flight, running or waiting, past which new ones get a 503.
    output_tokens: length of an answer whose request does not limit it.
    seed: varies the generated text.
    startup_delay_seconds: wall clock time before the port opens.
    runner: "generate" serves the routes that generate text, "pooling" the one that makes embeddings.
    enable_auto_tool_choice: whether the model may decide to call a tool; see `forms`.
    api_keys: if there are any, paths below /v1 need one of them as a bearer token.
    """

    models: tuple[str, ...] = ("simulated-model",)
    profile: str = DEFAULT_PROFILE
    time_scale: float = 1.0
    block_size: int = 16
    kv_tokens: int | None = None
    max_model_len: int | None = None
    max_num_queued_reqs: int | None = None
    output_tokens: int = 64
    seed: int = 0
    startup_delay_seconds: float = 0.0
    runner: str = "generate"
    enable_auto_tool_choice: bool = False
    api_keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("a stand-in needs at least one model name")
        if self.context_tokens < 2:
            raise ValueError(f"a context of {self.context_tokens} tokens cannot hold a prompt and an answer")

    @property
    def context_tokens(self) -> int:
        """Longest prompt and output together; always fits the KV cache."""
        tokens = PROFILES[self.profile].kv_tokens if self.kv_tokens is None else self.kv_tokens
        whole_blocks = tokens // self.block_size * self.block_size
        return min(whole_blocks, self.max_model_len or LARGEST_MODEL_LEN)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `prefix-router simulated-vllm`; vLLM's own names where vLLM has them."""
    default = StandInSettings()
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=8101, help="port to listen on, 0 for any free one (default: %(default)s)")
    add(
        *("--model", "--served-model-name"),
        dest="models",
        metavar="NAME",
        action="append",
        help=f"served model; repeat it for LoRA adapters (default: {default.models[0]})",
    )
    add(
        "--profile",
        choices=sorted(PROFILES),
        default=default.profile,
        help="what is simulated (default: %(default)s)",
    )
    add(
        "--time-scale",
        type=_positive_number,
        default=default.time_scale,
        metavar="X",
        help="simulated seconds per second; 10 is ten times as fast as the hardware (default: %(default)s)",
    )
    add(
        "--block-size",
        type=_positive_count,
        default=default.block_size,
        metavar="TOKENS",
        help="tokens in a KV block (default: %(default)s)",
    )
    add(
        "--kv-tokens", type=_positive_count, metavar="N", help="size of the KV cache (default: the profile's)"
    )
    add(
        "--max-model-len",
        type=_positive_count,
        metavar="TOKENS",
        help=f"longest prompt and output together (default: {LARGEST_MODEL_LEN}, or what the KV cache holds)",
    )
    add(
        "--max-num-queued-reqs",
        type=_positive_count,
        metavar="N",
        help="answer 503 to more than N requests in flight (default: no limit)",
    )
    add(
        "--output-tokens",
        type=_positive_count,
        default=default.output_tokens,
        metavar="N",
        help="length of an answer whose request has no limit (default: %(default)s)",
    )
    add("--seed", type=int, default=default.seed, help="varies the generated text (default: %(default)s)")
    add(
        "--startup-delay",
        type=float,
        default=default.startup_delay_seconds,
        metavar="SECONDS",
        help="wait before the port opens, as for weights to load (default: %(default)s)",
    )
    add(
        "--runner",
        choices=("generate", "pooling"),
        default=default.runner,
        help="generate text, or make embeddings (default: %(default)s)",
    )
    add(
        "--enable-auto-tool-choice",
        action="store_true",
        help="let the model decide to call a tool: the first one, once (default: it answers in words)",
    )
    add(
        "--api-key",
        dest="api_keys",
        metavar="KEY",
        action="append",
        help="ask for this bearer token below /v1; repeat it for more (default: no login)",
    )


def read_arguments(arguments: argparse.Namespace) -> StandInSettings:
    """The settings that parsed flags stand for. Raises ValueError when they contradict each other."""
    default = StandInSettings()
    return StandInSettings(
        models=tuple(arguments.models or default.models),
        profile=arguments.profile,
        time_scale=arguments.time_scale,
        block_size=arguments.block_size,
        kv_tokens=arguments.kv_tokens,
        max_model_len=arguments.max_model_len,
        max_num_queued_reqs=arguments.max_num_queued_reqs,
        output_tokens=arguments.output_tokens,
        seed=arguments.seed,
        startup_delay_seconds=arguments.startup_delay,
        runner=arguments.runner,
        enable_auto_tool_choice=arguments.enable_auto_tool_choice,
        api_keys=tuple(arguments.api_keys or ()),
    )


def _positive_count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def _positive_number(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value
