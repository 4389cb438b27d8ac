from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tokenizer of one id for each character, which begins texts with <s>, and a
    template.
    """
    directory = tmp_path_factory.mktemp("model")
    vocabulary = {"<unk>": 0, "<s>": 1, **{chr(code): code for code in range(2, 128)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.save(str(directory / "tokenizer.json"))
    configure(directory, bos_token={"content": "<s>"}, chat_template=TEMPLATE)
    return directory


def configure(directory: Path, **config: Any) -> None:
    """Write a `tokenizer_config.json`."""
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
