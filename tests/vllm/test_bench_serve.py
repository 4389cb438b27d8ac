"""vLLM's own load generator, `vllm bench serve`, through the router to stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.client_fleet import CHAT_MODEL, KEY, ClientFleet, client_fleet

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.vllm

PREFIXES, PROMPTS, PREFIX_TOKENS = 4, 16, 1200

# Not the program `vllm`: it asks for the version of a package of that name; the build for CPUs has another.
_BENCH = """\
import argparse
from vllm.benchmarks.serve import add_cli_args, main

parser = argparse.ArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def bench(fleet: ClientFleet, python: Path, tokenizer: Path, result: Path) -> Any:
    """Return what the load generator writes down of its run, one request at a time."""
    flags = {
        "--backend": "openai",
        "--base-url": fleet.url,
        "--model": CHAT_MODEL,
        "--tokenizer": tokenizer,
        "--dataset-name": "prefix_repetition",
        "--prefix-repetition-num-prefixes": PREFIXES,
        "--prefix-repetition-prefix-len": PREFIX_TOKENS,
        "--prefix-repetition-suffix-len": 20,
        "--prefix-repetition-output-len": 5,
        "--num-prompts": PROMPTS,
        "--max-concurrency": 1,
        "--result-dir": result.parent,
        "--result-filename": result.name,
    }
    words = [str(word) for flag in flags.items() for word in flag]
    environment = {"PATH": os.environ["PATH"], "HOME": str(result.parent), "NO_PROXY": "*"}
    ran = subprocess.run(
        [str(python), "-c", _BENCH, *words, "--save-result"],
        env={**environment, "OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(result.read_text())


@pytest.mark.timeout(200)
def test_each_prefix_is_computed_once_in_the_whole_fleet(
    vllm_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    with client_fleet() as fleet:
        measured = bench(fleet, vllm_python, tiny_model, tmp_path / "result.json")
        totals = fleet.status()["totals"]
    assert (measured["completed"], measured["failed"]) == (PROMPTS, 0)
    assert totals["cached_tokens"] >= (PROMPTS - PREFIXES) * PREFIX_TOKENS
