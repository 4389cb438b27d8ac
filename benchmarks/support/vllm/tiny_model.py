"""Makes a model directory that a real vLLM serves in a minute on two cores.

vLLM started with `--load-format dummy` fills in random weights, so a model needs no weights file: a shape
(`config.json`), a tokenizer and a chat template are enough. What it says is noise; what it costs is real:
prefill time grows with the prompt and the prefix cache saves it, which is all that a router can affect.

The tokenizer is a byte-level BPE trained on the manual that ships inside Python (`pydoc_data.topics`), so
nothing is downloaded and ordinary English words get a token or two.

Run by the Python of the vLLM environment: `python tiny_model.py DIRECTORY`. Takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY_SIZE = 4096
MAX_POSITIONS = 16_384
TURN_START, TURN_END, PADDING = "<|turn|>", "<|end|>", "<|padding|>"
SPECIAL_TOKENS = (TURN_START, TURN_END, PADDING)

# A turn is <|turn|>role\ncontent<|end|>\n. Content is text, or the list of parts that some APIs send.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{TURN_START}{{{{ message['role'] }}}}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}"
    f"{TURN_END}\n"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{TURN_START}assistant\n{{% endif %}}"
)


def train_tokenizer() -> Tokenizer:
    """Return a byte-level BPE tokenizer of `VOCABULARY_SIZE` tokens; every text round-trips through it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((topics[name] for name in sorted(topics)), trainer)
    return tokenizer


def model_config() -> dict[str, object]:
    """Return the shape: a Llama of four layers of 256, about 5 million weights, 4 KiB of KV cache a token."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": VOCABULARY_SIZE,
        "max_position_embeddings": MAX_POSITIONS,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": SPECIAL_TOKENS.index(TURN_END),
        "pad_token_id": SPECIAL_TOKENS.index(PADDING),
        "torch_dtype": "float32",
    }


def tokenizer_config() -> dict[str, object]:
    """Return what `transformers` needs beside `tokenizer.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "pad_token": PADDING,
        "additional_special_tokens": [TURN_START],
        "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


def build(directory: Path) -> None:
    """Write the model to `directory`, replacing what is there; a reader never sees a half-written model."""
    staging = directory.with_name(f"{directory.name}.{os.getpid()}")
    staging.mkdir(parents=True)
    train_tokenizer().save(str(staging / "tokenizer.json"))
    for name, content in (("config.json", model_config()), ("tokenizer_config.json", tokenizer_config())):
        (staging / name).write_text(json.dumps(content, indent=2) + "\n")
    shutil.rmtree(directory, ignore_errors=True)
    staging.rename(directory)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
